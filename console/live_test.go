package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stream is the browser's side of a stream of events.
type stream struct {
	header http.Header
	status int
	w      *io.PipeWriter
	words  chan string
}

func (s *stream) Header() http.Header         { return s.header }
func (s *stream) WriteHeader(status int)      { s.status = status }
func (s *stream) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s *stream) Flush()                      {}

// listen opens a stream that ends with ctx.
func listen(ctx context.Context, t *testing.T, h http.Handler) (*stream, chan struct{}) {
	t.Helper()
	return listenAs(ctx, t, h, "127.0.0.1:1")
}

// listenAs opens a stream from an address.
func listenAs(ctx context.Context, t *testing.T, h http.Handler, from string) (*stream, chan struct{}) {
	t.Helper()
	r, w := io.Pipe()
	s := &stream{header: http.Header{}, w: w, words: make(chan string, 100)}
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil)
	req.Host, req.RemoteAddr = "localhost", from
	req.Header.Set("Role", "viewer")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(s, req)
		_ = w.Close()
	}()
	go func() {
		defer close(s.words)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if what, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				s.words <- what
			}
		}
	}()
	return s, ended
}

// ends waits for the end of a stream in the bubble's fake time.
func ends(t *testing.T, ended chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(time.Hour):
		t.Fatal("the stream does not end")
	}
}

func TestAnOpenPageGetsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newStub("q", 1)
		c, err := New(Config{Queues: []Queue{{Queue: q}}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		s, ended := listen(ctx, t, c)
		if word := <-s.words; word != "hello" || s.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("it begins with %q, %v", word, s.header)
		}
		<-time.After(DefaultRefresh) // without a change there is no event
		synctest.Wait()
		if n := len(s.words); n != 0 {
			t.Errorf("%d words of nothing", n)
		}
		q.fail(errSilent)
		began := time.Now()
		if word := <-s.words; word != "changed" || time.Since(began) > 2*DefaultRefresh {
			t.Errorf("it says %q after %s", word, time.Since(began))
		}
		// Many changes cause one event.
		for range 1000 {
			c.svc.hub.notify()
		}
		<-time.After(10 * streamPause)
		synctest.Wait()
		if n := len(s.words); n < 1 || n > 2 {
			t.Errorf("1000 changes at once are %d words", n)
		}
		cancel()
		ends(t, ended)

		// An open page does not keep the console from closing.
		_, ended = listen(t.Context(), t, c)
		synctest.Wait()
		c.Close()
		ends(t, ended)
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range maxStreams {
			listenAs(t.Context(), t, c, fmt.Sprintf("127.0.0.%d:%d", 1+i/8, i))
		}
		synctest.Wait()
		s, ended := listenAs(t.Context(), t, c, "127.0.0.99:1")
		ends(t, ended)
		if s.status != http.StatusServiceUnavailable {
			t.Errorf("one more is %d", s.status)
		}
	})
}

// Otherwise one page or one viewer could use all streams.
func TestStreamsOfOneAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: byHeader()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 8 {
			listenAs(ctx, t, c, fmt.Sprintf("10.0.0.1:%d", i))
		}
		synctest.Wait()
		s, ended := listenAs(t.Context(), t, c, "10.0.0.1:99")
		ends(t, ended)
		if s.status != http.StatusServiceUnavailable {
			t.Errorf("one more of the same address is %d", s.status)
		}
		if s, _ := listenAs(ctx, t, c, "10.0.0.2:1"); <-s.words != "hello" {
			t.Error("another address has no stream")
		}
		cancel()
		synctest.Wait()
		if s, _ := listenAs(t.Context(), t, c, "10.0.0.1:100"); <-s.words != "hello" {
			t.Error("the address has no stream when its others have ended")
		}
	})
}

// The console's own server listens on this machine, serves, and ends with its context.
func TestListenAndServe(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 2)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- c.ListenAndServe(ctx, ServeConfig{Address: "127.0.0.1:0", Ready: func(url string) { ready <- url }})
	}()
	url := <-ready
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "<h1>") {
		t.Errorf("%d: %v", answer.StatusCode, err)
	}
	live, err := http.Get(url + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Body.Close()
	if line, err := bufio.NewReader(live.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "retry:") {
		t.Errorf("the stream begins with %q: %v", line, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
