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
	"net/url"
	"time"
)

// HTTPConfig says how messages are posted. URL is required.
type HTTPConfig struct {
	URL *url.URL
	// Authorization is the header of that name. Empty for none.
	Authorization string
	// Requests is how many are under way at once at most: so many connections are
	// kept.
	Requests int
	// CloudEvents sends each message as an event, in the binary mode of CloudEvents'
	// HTTP binding. EventType is the type of those that do not say their own.
	CloudEvents bool
	EventType   string
}

// HTTP is a handler that listens at a URL.
type HTTP struct {
	c         HTTPConfig
	transport http.RoundTripper
}

const (
	// mostRead bounds what is read of an answer that nobody wants, so that its
	// connection can be used again, and mostWait how long that may take.
	mostRead = 256 << 10
	mostWait = time.Second
	// idle is how long an unused connection is kept. Servers close theirs after as
	// little as five seconds, and a post on one that is being closed has failed.
	idle        = 4 * time.Second
	dialTimeout = 10 * time.Second
)

// NewHTTP returns a handler that posts. It follows no redirect: it takes one answer
// for one request.
func NewHTTP(c HTTPConfig) *HTTP {
	return &HTTP{c, &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    c.Requests,
		IdleConnTimeout:        idle,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Handle implements [Handler].
func (h *HTTP) Handle(ctx context.Context, m *Message) error {
	header := requestHeader(m)
	if h.c.CloudEvents {
		asEvent(header, m, h.c.EventType)
	}
	res, err := h.post(ctx, header, m.Body) //nolint:bodyclose // use closes it
	if err != nil {
		return err
	}
	keep := mostText * 2
	if res.StatusCode < 300 {
		keep = 0
	}
	text := use(res, keep)
	return verdict(res.StatusCode, res.Header, firstWords(text), time.Now())
}

// post sends one request and returns the answer, whose body is still to be read.
func (h *HTTP) post(ctx context.Context, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host, req.Header = h.c.URL, h.c.URL.Host, header
	if h.c.Authorization != "" {
		header["Authorization"] = []string{h.c.Authorization}
	}
	res, err := h.transport.RoundTrip(req)
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case unseen(err):
		return nil, &UnreachedError{fmt.Errorf("the handler is not reached: %w", err)}
	default:
		return nil, fmt.Errorf("the handler has not answered: %w", err)
	}
}

// unseen tells whether a request has failed before anything was sent.
func unseen(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || plain
}

// use reads an answer to its end, within bounds, and returns the first bytes of its
// body: keep of them, at most.
func use(res *http.Response, keep int) []byte {
	if res.Body == http.NoBody {
		return nil
	}
	late := time.AfterFunc(mostWait, func() { _ = res.Body.Close() })
	defer func() {
		late.Stop()
		_ = res.Body.Close()
	}()
	// What cannot be read is not there: the status says enough.
	text, _ := io.ReadAll(io.LimitReader(res.Body, int64(keep)))
	_, _ = io.CopyN(io.Discard, res.Body, mostRead)
	return text
}

// CheckURL says what is wrong with a handler's URL; nil for nothing. The error does
// not repeat it.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be http://host:port/path, or https")
	case u.User != nil:
		return errors.New("must have no user: arguments are seen by everybody on the host; REDELIVER_HTTP_AUTHORIZATION is the header's value")
	case u.Fragment != "":
		return errors.New("must have no #fragment: none is sent")
	default:
		return nil
	}
}
