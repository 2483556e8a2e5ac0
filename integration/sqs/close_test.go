//go:build prove

package sqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
)

// longReceives reports receives with at least this wait, and whether one was answered.
type longReceives struct {
	seconds  float64
	begins   chan struct{}
	answered atomic.Bool
}

func (l *longReceives) Do(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	var in struct {
		WaitTimeSeconds float64 `json:"WaitTimeSeconds"`
	}
	long := strings.HasSuffix(req.Header.Get("X-Amz-Target"), ".ReceiveMessage") && json.Unmarshal(body, &in) == nil && in.WaitTimeSeconds >= l.seconds
	if long {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			select {
			case l.begins <- struct{}{}:
			default:
			}
		}}))
	}
	resp, err := http.DefaultClient.Do(req)
	if long && err == nil {
		l.answered.Store(true)
	}
	return resp, err
}

// An idle subscriber closes while its receive could still wait for seconds. The server may give a later message to
// nobody. It is not hidden for the visibility timeout of ten minutes, and no attempt counts.
func TestAnIdleSubscriberClosesAtOnce(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	h := &harness{api: awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })}
	queue, _ := h.origin(t, 0)
	url := h.url(t, queue)
	const long = 8 // s; the fourth receive of an empty queue
	watched := &longReceives{seconds: long, begins: make(chan struct{}, 1)}
	cfg := sqs.Config{
		AWS: anyAWS(), Endpoint: endpoint, VisibilityTimeout: 10 * time.Minute,
		Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	}
	cfg.AWS.HTTPClient = watched
	one, err := sqs.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Subscriber().Subscribe(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-watched.begins:
	case <-ctx.Done():
		t.Fatal("no receive is long")
	}
	h.url(t, queue) // so that the server has read the previous request
	watched.answered.Store(false)
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watched.answered.Load() {
		t.Error("closing waited for a receive's answer")
	}
	body := "sent after Close"
	if _, err := h.api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
	cfg.AWS.HTTPClient = nil
	two, err := sqs.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close(context.Background())
	in, err := two.Subscriber().Subscribe(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case msg := <-in:
		if st, _ := redeliver.FromContext(msg.Context()); string(msg.Payload) != body || st.Attempt() != 1 {
			t.Errorf("attempt %d of %q", st.Attempt(), msg.Payload)
		}
		msg.Ack()
	case <-ctx.Done():
		t.Error("it did not come")
	}
}
