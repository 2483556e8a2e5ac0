package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
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
	// Timeout is the policy's, of one attempt: a connection may take a part of it, and
	// 10 s at most. Default, and for a negative one: 10 s.
	Timeout time.Duration
	// Retries are the policy's: a message of a batch that has used them up is posted
	// alone. 0 posts none alone for that.
	Retries int
}

// dialer has a quarter of an attempt, so that an address that swallows packets is known
// to do so while there is time to say it: an attempt that is over counts.
func (c *HTTPConfig) dialer() *net.Dialer {
	if c.Timeout <= 0 {
		return &net.Dialer{Timeout: dialTimeout}
	}
	return &net.Dialer{Timeout: min(dialTimeout, c.Timeout/4)}
}

// HTTP is a handler that listens at a URL.
type HTTP struct {
	c         HTTPConfig
	transport http.RoundTripper
	well      atomic.Bool // it has answered 2xx once: it is the handler
}

const (
	// maxRead bounds the rest of an answer that is read so that its connection can be used again, and
	// maxAnswerWait how long that may take.
	maxRead       = 256 << 10
	maxAnswerWait = time.Second
	// idle is how long an unused connection is kept. Servers close theirs after as
	// little as five seconds, and a post on one that is being closed has failed.
	idle        = 4 * time.Second
	dialTimeout = 10 * time.Second
)

// NewHTTP returns a handler that posts. It follows no redirect: it takes one answer
// for one request.
func NewHTTP(c HTTPConfig) *HTTP {
	dialer := c.dialer()
	return &HTTP{c: c, transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialer.Timeout / 2, // one that begins at half time ends in time, too
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
		header = eventHeader(m, h.c.EventType)
	}
	res, err := h.post(ctx, header, m.Body) //nolint:bodyclose // use closes it
	if err != nil {
		return err
	}
	keep := maxText * 2
	if res.StatusCode < 300 {
		keep = 0
	}
	return h.judge(res, firstWords(use(res, keep)))
}

// judge is what an answer says of a message; text is the beginning of its body. Before
// the first 2xx an answer that may be about the URL is taken for that: else a mistake
// there would send a whole topic to its DLQ.
func (h *HTTP) judge(res *http.Response, text string) error {
	err := verdict(res.StatusCode, res.Header, text, time.Now())
	switch {
	case err == nil:
		h.well.Store(true)
	case !h.well.Load() && misplaced(res.StatusCode, text):
		// Not err itself, which is permanent.
		return &UnreachedError{fmt.Errorf("%w; this counts as no attempt until the first 2xx: check --http and REDELIVER_HTTP_AUTHORIZATION", &StatusError{res.StatusCode, text})}
	}
	return err
}

// post sends one request and returns the answer, whose body is still to be read.
func (h *HTTP) post(ctx context.Context, header http.Header, body []byte) (*http.Response, error) {
	connected := false
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected = false }, // also for another try, of which nothing was sent before
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}), http.MethodPost, "", bytes.NewReader(body))
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
	case !connected || alerted(err):
		return nil, &UnreachedError{fmt.Errorf("the handler cannot be reached: %w", err)}
	default:
		return nil, fmt.Errorf("the handler did not answer: %w", err)
	}
}

// alerted reports whether the other side of TLS has refused to go on: with TLS 1.3 it
// says so of a client's certificate when a request may be under way already, which it
// does not read.
func alerted(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// use reads an answer to its end, within bounds, and returns the first bytes of its
// body: keep of them, at most.
func use(res *http.Response, keep int) []byte {
	if res.Body == http.NoBody {
		return nil
	}
	late := time.AfterFunc(maxAnswerWait, func() { _ = res.Body.Close() })
	defer func() {
		late.Stop()
		_ = res.Body.Close()
	}()
	// An unreadable body is ignored: the status says enough.
	text, _ := io.ReadAll(io.LimitReader(res.Body, int64(keep)))
	_, _ = io.CopyN(io.Discard, res.Body, maxRead)
	return text
}

// CheckAuthorization is a value of the header Authorization without the line end that a
// file or a secret often has. The error, about what no header can hold, does not repeat it.
func CheckAuthorization(value string) (string, error) {
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", errors.New("contains a control character, perhaps a line break, which a header cannot contain")
	}
	return value, nil
}

// CheckURL returns an error for a handler's URL that is wrong, or nil. The error does not repeat it.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be http://host:port/path or https://host:port/path")
	case u.User != nil:
		return errors.New("must not contain a user, because everybody on the host can see arguments: set REDELIVER_HTTP_AUTHORIZATION")
	case u.Fragment != "":
		return errors.New("must not contain a #fragment")
	default:
		return nil
	}
}
