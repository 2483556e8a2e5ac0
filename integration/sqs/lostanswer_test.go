package sqs_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/integration/brokers"
)

// losesAnswer loses the answer to the first receive.
type losesAnswer struct{ once sync.Once }

func (l *losesAnswer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := connections.RoundTrip(req)
	if err == nil && isReceive(req) {
		l.once.Do(func() {
			_ = resp.Body.Close()
			resp, err = nil, errors.New("the answer is lost")
		})
	}
	return resp, err
}

// A look at the DLQ whose answer is lost finds everything all the same: the SDK asks again while the messages of the lost answer
// are hidden.
func TestALostAnswerHidesNoDeadLetter(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	h := &harness{endpoint: endpoint}
	own := anyAWS()
	own.HTTPClient = &http.Client{Transport: &losesAnswer{}}
	h.api = awssqs.NewFromConfig(*own, func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
	origin, _ := h.origin(t, 0)
	h.createQueue(t, h.beside(origin, "-dlq"))
	h.write(t, h.beside(origin, "-dlq"), []adaptertest.Message{{ID: "a", Body: []byte("a")}, {ID: "b", Body: []byte("b")}, {ID: "c", Body: []byte("c")}})
	for range 2 { // it gives back what it has seen
		if found := h.dead(t, origin, origin, 3); len(found) != 3 {
			t.Errorf("%d messages are in the DLQ, want 3", len(found))
		}
	}
}
