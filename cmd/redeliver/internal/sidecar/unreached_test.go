package sidecar

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// roundTrip is a function as a transport.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// handlerOver returns a handler that posts through the test's transport.
func handlerOver(c HTTPConfig, f roundTrip) *HTTP {
	c.URL, c.Requests = &url.URL{Scheme: "http", Host: "handler"}, 1
	h := NewHTTP(c)
	h.transport = f
	return h
}

func answers(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(body))}
}

// The handler has not received a request that failed before the connection was made, or that TLS refused. For any other
// it is unknown.
func TestUnreachedRequestsAreRecognised(t *testing.T) {
	t.Parallel()
	const asked, got = true, false
	for name, c := range map[string]struct {
		steps     []bool // a connection is requested, or made
		err       error
		unreached bool
	}{
		"a proxy refuses CONNECT":  {[]bool{asked}, errors.New("Forbidden"), true},
		"the handshake takes long": {[]bool{asked}, errors.New("net/http: TLS handshake timeout"), true},
		"an alert comes late":      {[]bool{asked, got}, &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, true},
		"it breaks off":            {[]bool{asked, got}, io.ErrUnexpectedEOF, false},
		"the next is not there":    {[]bool{asked, got, asked}, errors.New("refused"), true},
	} {
		err := handlerOver(HTTPConfig{}, func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			for _, step := range c.steps {
				if step == asked {
					trace.GetConn("handler:80")
				} else {
					trace.GotConn(httptrace.GotConnInfo{})
				}
			}
			return nil, c.err
		}).Handle(t.Context(), newMessage())
		if _, unreached := errors.AsType[*UnreachedError](err); unreached != c.unreached || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection may take only a part of an attempt, so that its failure is known in time.
func TestHTTPConnectsInTime(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		0: dialTimeout, redeliver.NoTimeout: dialTimeout, 8 * time.Second: 2 * time.Second, 40 * time.Second: dialTimeout, time.Hour: dialTimeout,
	} {
		c := HTTPConfig{Timeout: timeout}
		h := NewHTTP(c)
		if got, tls := c.dialer().Timeout, h.transport.(*http.Transport).TLSHandshakeTimeout; got != want || tls != want/2 {
			t.Errorf("with %s a dial has %s and a handshake %s", timeout, got, tls)
		}
	}
	// A server that accepts connections but does not answer.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	h := NewHTTP(HTTPConfig{URL: &url.URL{Scheme: "https", Host: l.Addr().String()}, Requests: 1, Timeout: 400 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	err = h.Handle(ctx, newMessage())
	if _, unreached := errors.AsType[*UnreachedError](err); !unreached || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// The response of Go's TLS server to plain http:// is recognised.
func TestPlainHTTPToATLSPortIsRecognised(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	h := NewHTTP(HTTPConfig{URL: &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}, Requests: 1})
	err := h.Handle(t.Context(), newMessage())
	if !Classify(err).Unreachable {
		t.Errorf("%v", err)
	}
}

// A secret that was made with echo has a line end. No error quotes a secret.
func TestCheckAuthorization(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "Bearer s3cret": "Bearer s3cret", "Bearer s3cret\n": "Bearer s3cret", "Bearer s3cret\r\n": "Bearer s3cret", "Bearer\tü": "Bearer\tü",
		"Bearer s3cret\n\n": "refused", "Bearer s3cret\r\nX-Evil: 1": "refused", "s3cret\x00": "refused", "s3cret\x7f": "refused", "\ns3cret": "refused",
	} {
		got, err := CheckAuthorization(value)
		if err != nil {
			got = "refused"
		}
		if got != want || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q is %q, %v", value, got, err)
		}
	}
}
