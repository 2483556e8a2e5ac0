package sqs

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

// earlyAnswers is an HTTP client whose answers begin before the last write of the request has returned.
type earlyAnswers struct {
	next http.RoundTripper

	mu      sync.Mutex
	written []error
}

// earlyBody is the body of an answer. The request's write continues only when a reader has closed the request's body.
type earlyBody struct {
	io.ReadCloser
	once sync.Once
	goOn func()
}

func (b *earlyBody) Read(p []byte) (int, error) {
	b.once.Do(b.goOn)
	return b.ReadCloser.Read(p)
}

// slowBody is the body of a request. After its last byte, the check for more waits for the answer.
type slowBody struct {
	io.ReadCloser
	answer <-chan struct{}
}

// WriteTo is the method by which net/http checks for more.
func (b *slowBody) WriteTo(w io.Writer) (int64, error) {
	<-b.answer
	return b.ReadCloser.(io.WriterTo).WriteTo(w)
}

func (c *earlyAnswers) Do(req *http.Request) (*http.Response, error) {
	answer, written := make(chan struct{}), make(chan error, 1)
	trace := &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { written <- i.Err }}
	own := req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	own.Body = &slowBody{req.Body, answer}
	resp, err := c.next.RoundTrip(own)
	if err != nil {
		close(answer)
		return nil, err
	}
	resp.Body = &earlyBody{ReadCloser: resp.Body, goOn: func() {
		close(answer)
		err := <-written
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written = append(c.written, err)
	}}
	return resp, nil
}

// An answer may come while net/http still checks for the end of the request's body. It must not be cut off and
// requested again: its messages would stay hidden from all until their visibility timeout ends.
func TestEarlyAnswerIsReadToItsEnd(t *testing.T) {
	var receives atomic.Int64
	body := strings.Repeat("x", 20_000) // more than one read
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		out := `{"QueueUrl":"http://sqs.test/1/orders"}`
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".ReceiveMessage") {
			receives.Add(1)
			out = `{"Messages":[{"MessageId":"a","ReceiptHandle":"r","Body":"` + body + `"}]}`
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, out)
	}))
	defer server.Close()
	quick := &earlyAnswers{next: server.Client().Transport}
	c, err := Open(t.Context(), Config{
		Endpoint: server.URL, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
		AWS: &aws.Config{Region: "eu-west-1", HTTPClient: quick, Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	queue := &api.Queue{API: brokerOf(c).api, Name: "orders", URL: "http://sqs.test/1/orders"}
	s := newSource(newReader(ctx, brokerOf(c), &layout{main: queue, suspects: queue, dlq: queue}), queue)
	got, err := s.receive(10, time.Second)
	if err != nil || len(got) != 1 || aws.ToString(got[0].Body) != body {
		t.Errorf("received %d messages: %v", len(got), err)
	}
	if n := receives.Load(); n != 1 {
		t.Errorf("%d receives were sent, want 1", n)
	}
	quick.mu.Lock()
	defer quick.mu.Unlock()
	if len(quick.written) != 1 || quick.written[0] != nil {
		t.Errorf("the write of net/http returned %v; after an error it closes the connection", quick.written)
	}
}
