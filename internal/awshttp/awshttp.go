// Package awshttp provides an HTTP client for the AWS SDK that loses no answers.
package awshttp

import (
	"bytes"
	"io"
	"net/http"
	"time"

	aws "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// Client sends a request of the SDK. It is the interface aws.HTTPClient.
type Client interface {
	Do(req *http.Request) (*http.Response, error)
}

// WholeBodies reads the body of each request into memory before it passes the request to Next.
//
// The SDK closes a request's body as soon as the answer begins (smithy-go 1.28.9). If net/http still reads the body then, it
// takes the closed body for a failed write, and closes the connection before it has read the answer. The SDK tries again, and
// the messages of the lost answer stay hidden until their visibility timeout ends.
//
// A body in memory also leaves together with the headers.
type WholeBodies struct{ Next Client }

// Do implements [Client].
func (c WholeBodies) Do(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return c.Next.Do(req)
	}
	body, err := io.ReadAll(req.Body) // at most one batch of SQS; the SDK closes it
	if err != nil {
		return nil, err
	}
	own := *req // a copy, because the SDK keeps the request
	own.Body = io.NopCloser(bytes.NewReader(body))
	own.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return c.Next.Do(&own)
}

// MaxResponseWait bounds the wait for the headers of an answer. A receive of SQS waits for at most 20 s.
const MaxResponseWait = 45 * time.Second

// BoundResponses makes the SDK's own client give up on a server that accepts requests and does not answer. It returns
// other clients, and one that already has a bound, unchanged.
func BoundResponses(c Client) Client {
	own, ok := c.(*aws.BuildableClient)
	if !ok || own.GetTransport().ResponseHeaderTimeout > 0 || own.GetTimeout() > 0 {
		return c
	}
	return own.WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = MaxResponseWait })
}
