package sqsfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// ErrCut is the error of requests on a connection that is cut.
var ErrCut = errors.New("the connection is cut")

// Connection is how one process reaches a server. It is an http.RoundTripper. A test that cuts it kills the process, as
// far as the server can know.
type Connection struct {
	server *Server
	name   string

	mu  sync.Mutex
	ctx context.Context // ends when the connection is cut
	cut context.CancelFunc
}

// Connect returns a connection. Its name is in calls and operations.
func (s *Server) Connect(name string) *Connection {
	c := &Connection{server: s, name: name}
	c.Restore()
	return c
}

// Config returns a configuration of the SDK that uses the connection. The SDK repeats no request.
func (c *Connection) Config() *aws.Config {
	return &aws.Config{
		Region: Region, BaseEndpoint: aws.String(Endpoint), HTTPClient: &http.Client{Transport: c},
		Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLEEXAMPLE", "s3cr3tk3y", "t0k3n"),
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	}
}

// Cut cuts the connection. No answer comes back any more. A receive that waits continues at the server.
func (c *Connection) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
}

// Restore makes a connection usable that was cut.
func (c *Connection) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.cut = context.WithCancel(context.Background())
}

// RoundTrip implements http.RoundTripper.
func (c *Connection) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	line := c.ctx
	c.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	call, err := ParseCall(req.Header, body)
	if err != nil {
		return nil, err
	}
	call.Connection = c.name
	if line.Err() != nil {
		return nil, ErrCut
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	defer context.AfterFunc(line, func() { cancel(ErrCut) })()
	a, err := c.server.serve(ctx, call)
	if err != nil {
		return nil, err
	}
	if line.Err() != nil { // it was cut by an injected function
		return nil, ErrCut
	}
	return a.response(req)
}

func (a answer) response(req *http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	if a.refusal != nil {
		return a.refusal.response(req, header), nil
	}
	body, err := json.Marshal(a.out)
	return response(req, http.StatusOK, header, body), err
}

func response(req *http.Request, status int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: req,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
