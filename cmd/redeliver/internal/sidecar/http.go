package sidecar

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// HTTPConfig configures how messages are posted. URL is required.
type HTTPConfig struct {
	URL *url.URL
	// Authorization is the value of the header Authorization. Empty for none.
	Authorization string
	// Bearer returns the value of the header for each request, instead of Authorization. Optional.
	Bearer func() string
	// TLS is the client's configuration of TLS. Nil for the default.
	TLS *tls.Config
	// Requests is the maximum number of concurrent requests, and of kept connections.
	Requests int
	// CloudEvents sends each message as an event, in the binary mode of CloudEvents' HTTP binding. EventType is the
	// type of events that do not have one.
	CloudEvents bool
	EventType   string
	// Timeout is the policy's timeout of an attempt. Connecting may take a quarter of it, at most 10 s. If it is
	// not positive: 10 s.
	Timeout time.Duration
	// Statuses replaces the meaning of single statuses.
	Statuses Statuses
	// Retries is the policy's MaxRetries. In a batch, a message that has used them up is posted alone; 0 disables
	// this.
	Retries int
}

// dialer limits connecting to a quarter of Timeout, so that an address that drops packets is detected before the
// timeout, which counts as an attempt.
func (c *HTTPConfig) dialer() *net.Dialer {
	if c.Timeout <= 0 {
		return &net.Dialer{Timeout: dialTimeout}
	}
	return &net.Dialer{Timeout: min(dialTimeout, c.Timeout/4)}
}

// HTTP is a handler that is reached at a URL.
type HTTP struct {
	c                HTTPConfig
	transport, fresh http.RoundTripper // fresh makes a new connection for each post
}

const (
	// maxRead is the maximum number of bytes that are read from the rest of an answer to reuse its connection, and
	// maxAnswerWait the maximum time for that.
	maxRead       = 256 << 10
	maxAnswerWait = time.Second
	// idle is how long an unused connection is kept. Servers close theirs after as little as 5 s, and a post on a
	// connection that is being closed fails.
	idle        = 4 * time.Second
	dialTimeout = 10 * time.Second
)

// NewHTTP returns a handler that posts messages. It does not follow redirects.
func NewHTTP(c HTTPConfig) *HTTP {
	dialer := c.dialer()
	// A try may begin at half of the attempt's time.
	fresh := newTransport(dialer, dialer.Timeout/2, 0, c.TLS)
	fresh.DisableKeepAlives = true
	return &HTTP{c: c, transport: newTransport(dialer, dialer.Timeout/2, c.Requests, c.TLS), fresh: fresh}
}

func newTransport(dialer *net.Dialer, handshake time.Duration, connections int, own *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    handshake,
		TLSClientConfig:        own.Clone(), // a transport changes it
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        idle,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Handle implements [Handler].
func (h *HTTP) Handle(ctx context.Context, m *Message) error {
	header := requestHeader(m)
	if h.c.CloudEvents {
		header = eventHeader(m, h.c.EventType)
	}
	res, err := h.post(ctx, header, m.Body) //nolint:bodyclose // readAnswer closes it
	if err != nil {
		return err
	}
	keep := maxText * 2
	if res.StatusCode < 300 {
		keep = 0
	}
	return h.errorOfAnswer(res, firstWords(readAnswer(res, keep)))
}

// errorOfAnswer returns the meaning of an answer for a message. text is the beginning of the answer's body.
func (h *HTTP) errorOfAnswer(res *http.Response, text string) error {
	return h.c.Statuses.errorOfStatus(res.StatusCode, res.Header, text, time.Now())
}

// post sends one request and returns the answer. The caller must read its body. A server may close an idle connection at the moment
// at which it is used again. Then post tries once more, on a new one. If that one is refused, the process of the server has ended,
// perhaps because of this message: then the first failure is the answer.
func (h *HTTP) post(ctx context.Context, header http.Header, body []byte) (*http.Response, error) {
	res, idle, err := h.postOver(ctx, h.transport, header, body)
	if err == nil || !idle {
		return res, err
	}
	res, _, again := h.postOver(ctx, h.fresh, header, body)
	if _, unreached := errors.AsType[*UnreachedError](again); unreached {
		return nil, err
	}
	return res, again
}

// postOver is post over one transport. idle reports whether an idle connection was closed without a byte of an answer.
func (h *HTTP) postOver(ctx context.Context, over http.RoundTripper, header http.Header, body []byte) (res *http.Response, idle bool, err error) {
	connected, wasIdle := false, false
	var answered atomic.Bool // another goroutine sets it
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { connected = false }, // also for a retry, of which nothing was sent yet
		GotConn:              func(c httptrace.GotConnInfo) { connected, wasIdle = true, c.WasIdle },
		GotFirstResponseByte: func() { answered.Store(true) },
	}), http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.URL, req.Host, req.Header = h.c.URL, h.c.URL.Host, header
	if h.c.Bearer != nil {
		header["Authorization"] = []string{h.c.Bearer()}
	} else if h.c.Authorization != "" {
		header["Authorization"] = []string{h.c.Authorization}
	}
	res, err = over.RoundTrip(req)
	switch {
	case err == nil:
		return res, false, nil
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case !connected || isTLSAlert(err):
		return nil, false, &UnreachedError{fmt.Errorf("the handler cannot be reached: %w", err)}
	default:
		return nil, wasIdle && !answered.Load() && isClosed(err), fmt.Errorf("the handler did not answer: %w", err)
	}
}

// isClosed reports whether the server has closed the connection. net/http has no name for one of these errors.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "server closed idle connection")
}

// isTLSAlert reports whether the TLS peer has sent an alert. With TLS 1.3 it may reject a client's certificate after
// the request was sent, without reading it.
func isTLSAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// readAnswer reads an answer to its end, within limits, and returns at most the first keep bytes of its body.
func readAnswer(res *http.Response, keep int) []byte {
	if res.Body == http.NoBody {
		return nil
	}
	late := time.AfterFunc(maxAnswerWait, func() { _ = res.Body.Close() })
	defer func() {
		late.Stop()
		_ = res.Body.Close()
	}()
	// An unreadable body is ignored, because the status suffices.
	text, _ := io.ReadAll(io.LimitReader(res.Body, int64(keep)))
	_, _ = io.CopyN(io.Discard, res.Body, maxRead)
	return text
}

// CheckAuthorization returns a value of the header Authorization without the line end that a file or a secret often
// has. Its error does not quote the value.
func CheckAuthorization(value string) (string, error) {
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", errors.New("contains a control character, perhaps a line break, which a header cannot contain")
	}
	return value, nil
}

// ParseURL parses the URL of a handler or a webhook. A login must be in the variable authorization instead. The error
// does not quote the URL, which may be a secret.
func ParseURL(text, authorization string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("must be http://host:port/path or https://host:port/path")
	case u.User != nil:
		return nil, errors.New("must not contain a user: set " + authorization)
	case u.Fragment != "":
		return nil, errors.New("must not contain a #fragment")
	default:
		return u, nil
	}
}
