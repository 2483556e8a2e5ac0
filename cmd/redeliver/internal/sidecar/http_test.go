package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// maxWait is the timeout for what must happen eventually. No test depends on how soon.
const maxWait = time.Minute

// handlerAt returns a handler that posts to the test's server.
func handlerAt(t *testing.T, c HTTPConfig, serve http.HandlerFunc) (*HTTP, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/orders?shop=1")
	if err != nil {
		t.Fatal(err)
	}
	c.URL = u
	if c.Requests == 0 {
		c.Requests = 10
	}
	h := NewHTTP(c)
	t.Cleanup(h.transport.(*http.Transport).CloseIdleConnections)
	return h, server
}

// The body is sent unchanged, with the configured headers.
func TestHTTPPosts(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte{0, 255, '\r', '\n', 'x'}, 50_000)
	var got []byte
	var header http.Header
	h, _ := handlerAt(t, HTTPConfig{Authorization: "Bearer secret"}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.RequestURI() != "/orders?shop=1" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		w.WriteHeader(http.StatusAccepted)
	})
	m := newMessage()
	m.Body = body
	if err := h.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, body) || header.Get("Authorization") != "Bearer secret" || header.Get("Redeliver-Id") != m.State.ID {
		t.Errorf("%d bytes of %d, with %v", len(got), len(body), header)
	}
	m.Body = nil
	if err := h.Handle(t.Context(), m); err != nil || len(got) != 0 {
		t.Errorf("an empty body comes as %d bytes, %v", len(got), err)
	}
}

// A handler that hangs is cancelled when the attempt's time is over.
func TestHTTPHangs(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	h, server := handlerAt(t, HTTPConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		entered <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := &redeliver.TimeoutError{After: time.Minute}
	go func() {
		<-entered
		cancel(over)
	}()
	if err := h.Handle(ctx, newMessage()); !errors.Is(err, redeliver.ErrTimeout) {
		t.Errorf("%v", err)
	}
	server.CloseClientConnections()
}

// A handler that is not reached has not received the message; one that breaks the connection has.
func TestHTTPWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	h, server := handlerAt(t, HTTPConfig{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	err := h.Handle(t.Context(), newMessage())
	if _, unreached := errors.AsType[*UnreachedError](err); err == nil || unreached || errors.Is(err, redeliver.ErrPermanent) || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("it breaks off: %v", err)
	}
	server.Close()
	err = h.Handle(t.Context(), newMessage())
	if _, unreached := errors.AsType[*UnreachedError](err); !unreached || errors.Is(err, redeliver.ErrPermanent) {
		t.Errorf("it is not there: %v", err)
	}
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	u, err := url.Parse(secure.URL)
	if err != nil {
		t.Fatal(err)
	}
	err = NewHTTP(HTTPConfig{URL: u, Requests: 1}).Handle(t.Context(), newMessage())
	if _, unreached := errors.AsType[*UnreachedError](err); !unreached {
		t.Errorf("its certificate is unknown: %v", err)
	}
}

// A server may close a connection at the moment at which it is used again. Its request is posted again at once, on a new connection.
// A request that breaks off on a new one may have been handled, so it is an answer, and no post is repeated twice.
func TestHTTPPostsAgainWhenAnIdleConnectionCloses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers  []string // of each request on one connection: "ok", "" to close without a byte, or a part of an answer
		listens  int      // connections before the server ends; 0 for all
		posts    int
		requests int32
		failed   int
	}{
		"closes on the second":     {[]string{"ok", ""}, 0, 10, 15, 0},
		"closes on the first":      {[]string{""}, 0, 3, 3, 3},
		"a part of an answer":      {[]string{"ok", "HTTP/1.1 2"}, 0, 4, 4, 2},
		"the process ends with it": {[]string{"ok", ""}, 1, 2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var requests atomic.Int32
			ended := make(chan struct{})
			serve := func(conn net.Conn) {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for _, answer := range c.answers {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					requests.Add(1)
					if answer != "ok" {
						_, _ = io.WriteString(conn, answer)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}
			go func() {
				defer close(ended)
				for n := 1; ; n++ {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					if n == c.listens {
						_ = l.Close()
					}
					go serve(conn)
				}
			}()
			h := NewHTTP(HTTPConfig{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}, Requests: 1})
			failed := 0
			for range c.posts {
				m := newMessage()
				m.Body = []byte("body")
				if err := h.Handle(t.Context(), m); err != nil {
					if _, unreached := errors.AsType[*UnreachedError](err); unreached || !strings.Contains(err.Error(), "did not answer") {
						t.Error(err)
					}
					failed++
				}
			}
			if n := requests.Load(); failed != c.failed || n != c.requests {
				t.Errorf("%d posts failed, of %d requests", failed, n)
			}
			_ = l.Close()
			<-ended
			h.transport.(*http.Transport).CloseIdleConnections()
		})
	}
}

// A redirect is an answer. Nothing is posted to its target.
func TestHTTPFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		var elsewhere atomic.Int32
		h, _ := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/orders" {
				elsewhere.Add(1)
				return
			}
			http.Redirect(w, r, "/elsewhere", code)
		})
		err := h.Handle(t.Context(), newMessage())
		status, ok := errors.AsType[*StatusError](err)
		if !ok || status.Code != code || errors.Is(err, redeliver.ErrPermanent) || !strings.Contains(err.Error(), `"/elsewhere"`) || elsewhere.Load() != 0 {
			t.Errorf("%d: %v, followed %d times", code, err, elsewhere.Load())
		}
	}
}

// The error has the beginning of the handler's answer, however long the answer is.
func TestHTTPErrorsHaveTheAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		body string
		want string
	}{
		"a word":    {500, "card declined\n", "the handler answered 500 Internal Server Error: card declined"},
		"nothing":   {500, "", "the handler answered 500 Internal Server Error"},
		"a mebi":    {500, strings.Repeat("x", 1<<20), "the handler answered 500 Internal Server Error: " + strings.Repeat("x", maxText)},
		"all is ok": {200, strings.Repeat("x", 1<<20), ""},
	} {
		h, _ := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		})
		text := ""
		if err := h.Handle(t.Context(), newMessage()); err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("%s: %.100q", name, text)
		}
	}
}

// An answer without end, or one that stalls, does not delay its message.
func TestHTTPAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"it never ends": func(w http.ResponseWriter, _ *http.Request) bool {
			_, err := w.Write(make([]byte, 64<<10))
			return err == nil
		},
		"it stops": func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return false
		},
	} {
		for _, code := range []int{200, 503} {
			h, _ := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(code)
				_, _ = io.WriteString(w, "so far")
				w.(http.Flusher).Flush()
				for more(w, r) {
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), maxWait)
			err := h.Handle(ctx, newMessage())
			if ctx.Err() != nil || (err == nil) != (code == 200) || err != nil && !strings.Contains(err.Error(), "so far") {
				t.Errorf("%s, %d: %v", name, code, err)
			}
			cancel()
		}
	}
}

// Concurrent posts need no more connections than there are posts.
func TestHTTPKeepsItsConnections(t *testing.T) {
	t.Parallel()
	const at, each = 20, 50
	var made atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, strings.Repeat("done ", 1000)) // an unread rest keeps a connection from being reused
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			made.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHTTP(HTTPConfig{URL: u, Requests: at})
	defer h.transport.(*http.Transport).CloseIdleConnections()
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for range each {
				if err := h.Handle(t.Context(), newMessage()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// A new connection may be ready when another becomes free. Then both are kept.
	if n := made.Load(); n > 3*at {
		t.Errorf("%d connections for %d posts, %d at once", n, at*each, at)
	}
}

func TestParseURL(t *testing.T) {
	for text, good := range map[string]bool{
		"http://localhost:8080": true, "https://handler/orders?a=1": true, "http://[::1]:80/": true,
		"ftp://host": false, "http://": false, "localhost:8080": false, "/orders": false, "http://user:secret@host": false, "http://:80/": false, "http://host/#x": false, "http://user:secret@[": false,
	} {
		if u, err := ParseURL(text, "AUTHORIZATION"); (u != nil) != good || (err == nil) != good || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", text, u, err)
		}
	}
}
