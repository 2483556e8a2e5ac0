// Package awshttp is an HTTP client for AWS's SDK that loses no answers.
package awshttp

import (
	"bytes"
	"io"
	"net/http"
)

// Client is how the SDK sends a request: the interface aws.HTTPClient.
type Client interface {
	Do(req *http.Request) (*http.Response, error)
}

// WholeBodies gives the next client requests whose bodies it need not share.
//
// The SDK closes a request's body as soon as the answer begins, and what it wraps
// bodies in answers a later WriteTo with io.EOF, which net/http takes for a failed
// write (smithy-go 1.28.9): it looks once more behind the last byte that it has sent,
// and where the answer is quicker than that look it closes the connection, with the
// rest of the answer unread. The SDK tries again, and the messages of the lost answer
// are hidden from all until their visibility timeout is over.
//
// A body that is known to be in memory leaves together with the headers, too, and not
// behind them.
type WholeBodies struct{ Next Client }

// Do implements [Client].
func (c WholeBodies) Do(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return c.Next.Do(req)
	}
	body, err := io.ReadAll(req.Body) // a request of SQS, at most a batch; the SDK closes it
	if err != nil {
		return nil, err
	}
	own := *req // the SDK keeps the request
	own.Body = io.NopCloser(bytes.NewReader(body))
	own.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return c.Next.Do(&own)
}
