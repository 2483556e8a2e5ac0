package sqs

import (
	"bytes"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// wholeBodies gives the HTTP client requests whose bodies it need not share.
//
// The SDK closes a request's body as soon as the answer begins, and what it wraps
// bodies in answers a later WriteTo with io.EOF, which net/http takes for a failed
// write (smithy-go 1.28.8): it looks once more behind the last byte that it has sent,
// and where the answer is quicker than that look it closes the connection, with the
// rest of the answer unread. The SDK tries again, and the messages of the lost answer
// are hidden from all until their visibility timeout is over.
//
// A body that is known to be in memory leaves together with the headers, too, and not
// behind them.
type wholeBodies struct{ next sqs.HTTPClient }

// Do implements aws.HTTPClient.
func (c wholeBodies) Do(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return c.next.Do(req)
	}
	body, err := io.ReadAll(req.Body) // a request of SQS, at most a batch; the SDK closes it
	if err != nil {
		return nil, err
	}
	own := *req // the SDK keeps the request
	own.Body = io.NopCloser(bytes.NewReader(body))
	own.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return c.next.Do(&own)
}
