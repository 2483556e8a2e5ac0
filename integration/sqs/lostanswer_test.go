package sqs_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
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

// A scan of the DLQ with a lost answer still finds everything: the SDK repeats the request while the messages of the
// lost answer are hidden.
func TestALostAnswerHidesNoDeadLetter(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	h := harnessOn(endpoint, false)
	own := anyAWS()
	own.HTTPClient = &http.Client{Transport: &losesAnswer{}}
	h.api = awssqs.NewFromConfig(*own, func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
	origin, _ := h.origin(t, 0)
	h.createQueue(t, h.beside(origin, "-dlq"))
	h.write(t, h.beside(origin, "-dlq"), []adaptertest.Message{{ID: "a", Body: []byte("a")}, {ID: "b", Body: []byte("b")}, {ID: "c", Body: []byte("c")}})
	for range 2 { // it gives back what it has read
		if found := h.dead(t, origin, origin, 3); len(found) != 3 {
			t.Errorf("%d messages are in the DLQ, want 3", len(found))
		}
	}
}

// A message that the server gives to a receive of a killed service is visible again at once.
func TestAKilledServiceHidesNothing(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	h := harnessOn(endpoint, false)
	origin, _ := h.origin(t, 0)
	url := h.url(t, origin)
	w := newCuttableTransport(h)
	own := anyAWS()
	own.HTTPClient = &http.Client{Transport: w}
	own.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	api := awssqs.NewFromConfig(*own, func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
	sent, received := make(chan struct{}), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }}))
		defer cancel()
		_, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 10, VisibilityTimeout: 600})
		received <- err
	}()
	<-sent
	h.url(t, origin) // so that the server has read the previous request
	service{nil, w}.Kill()
	if err := <-received; !errors.Is(err, errCut) {
		t.Errorf("the receive of the killed service says %v", err)
	}
	h.put(t, origin, adaptertest.Message{ID: "a", Body: []byte("a")})
	for began := time.Now(); time.Since(began) < adaptertest.Timeout; {
		out, err := h.api.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) > 0 {
			return
		}
	}
	t.Errorf("the message did not come within %s", adaptertest.Timeout)
}
