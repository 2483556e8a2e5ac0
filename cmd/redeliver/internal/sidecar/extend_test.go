package sidecar

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/contextkey"
)

// extendable is an attempt that records how it is extended.
type extendable struct {
	by  []time.Duration
	err error
}

func (e *extendable) Extend(by time.Duration) error {
	e.by = append(e.by, by)
	return e.err
}

// While a program has a message, its URL extends the attempt, and no other URL does.
func TestExtensions(t *testing.T) {
	t.Parallel()
	e := NewExtensions()
	mux := http.NewServeMux()
	mux.Handle(ExtendPath, e)
	server := httptest.NewServer(mux)
	defer server.Close()
	e.Listening(server.Listener.Addr().String())
	ask := func(method, url string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	attempt := &extendable{}
	var own string
	r := &runner{Config: Config{Policy: redeliver.Policy{Timeout: time.Minute}, Health: NewHealth("orders", brokerurl.Kafka, nil), Extensions: e, Handler: handlerFunc(func(_ context.Context, m *Message) error {
		own = m.Extend
		if h := requestHeader(m); h.Get("Redeliver-Extend") != own {
			t.Errorf("the post has %q, not %q", h.Get("Redeliver-Extend"), own)
		}
		env, _ := environment(m)
		if !strings.Contains(strings.Join(env, "\n"), "REDELIVER_EXTEND="+own) {
			t.Errorf("the environment lacks %s: %q", own, env)
		}
		for _, c := range []struct {
			method, url string
			want        int
		}{
			{http.MethodPost, own, http.StatusNoContent},
			{http.MethodPost, own + "?for=90s", http.StatusNoContent},
			{http.MethodPost, own + "?for=soon", http.StatusBadRequest},
			{http.MethodPost, own + "?for=-1s", http.StatusBadRequest},
			{http.MethodPost, own + "x", http.StatusNotFound},
			{http.MethodGet, own, http.StatusMethodNotAllowed},
		} {
			if got := ask(c.method, c.url); got != c.want {
				t.Errorf("%s %s is answered with %d, want %d", c.method, c.url, got, c.want)
			}
		}
		attempt.err = redeliver.ErrNotExtended
		if got := ask(http.MethodPost, own); got != http.StatusConflict {
			t.Errorf("a refusal is answered with %d", got)
		}
		return nil
	})}}
	if err := r.handleOne(context.WithValue(t.Context(), contextkey.State{}, attempt), newMessage()); err != nil {
		t.Fatal(err)
	}
	if len(attempt.by) != 3 || attempt.by[0] != time.Minute || attempt.by[1] != 90*time.Second {
		t.Errorf("it was extended by %v", attempt.by)
	}
	if got := ask(http.MethodPost, own); got != http.StatusNotFound {
		t.Errorf("after the attempt the URL is answered with %d", got)
	}
}

// A batch has one URL.
func TestABatchIsExtended(t *testing.T) {
	t.Parallel()
	var header string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { header = r.Header.Get("Redeliver-Extend") }))
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := NewExtensions()
	e.Listening("[::]:8081")
	r := &runner{Config: Config{Health: NewHealth("orders", brokerurl.Kafka, nil), Extensions: e, Handler: NewHTTP(HTTPConfig{URL: target, Requests: 1})}}
	if err := r.callBatcher(t.Context(), []*Message{newMessage(), newMessage()}, func(int, error) {}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(header, "http://127.0.0.1:8081/extend/") {
		t.Errorf("the post has %q", header)
	}
	if n := len(e.running); n != 0 {
		t.Errorf("%d attempts are left", n)
	}
}

// The listener may have a fixed address, which is used as it is.
func TestTheAddressOfExtensions(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{":8081": "http://127.0.0.1:8081/extend/", "10.0.0.7:1": "http://10.0.0.7:1/extend/", "[::1]:1": "http://[::1]:1/extend/"} {
		e := NewExtensions()
		if e.Listening(address); e.base != want {
			t.Errorf("%s: %s, want %s", address, e.base, want)
		}
	}
}
