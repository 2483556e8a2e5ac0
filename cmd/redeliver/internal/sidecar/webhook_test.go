package sidecar

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
)

// safeBuffer is a buffer for a log that tests read.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func letter(id string) redeliver.DeadLettered {
	return redeliver.DeadLettered{Where: "orders.billing.dlq", Err: errors.New("https://ann:s3cret@db/ is away"), State: redeliver.State{
		ID: id, Origin: "orders", Group: "billing", Reason: redeliver.ReasonExhausted, Attempts: 4, Replays: 1,
		Error: "https://***@db/ is away", ErrorType: "*net.OpError", FirstError: "card 4711 declined", LastFailed: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
	}}
}

// postLetters posts letters to a server with these answers, at a secret path, and ends.
func postLetters(t *testing.T, answer http.HandlerFunc, ids ...string) (w *Webhook, log string) {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/services/s3cret?token=t0p")
	if err != nil {
		t.Fatal(err)
	}
	var out safeBuffer
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w = webhookOver(WebhookConfig{URL: u, Authorization: "Bearer k3y", Broker: "kafka", Log: slog.New(slog.NewTextHandler(&out, nil))}, transport,
		func() backoff.BackOff { return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Millisecond), 2) })
	for _, id := range ids {
		w.Event(letter(id))
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.End()
	for _, secret := range []string{"s3cret", "t0p", "k3y"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the log has %s: %s", secret, out.String())
		}
	}
	return w, out.String()
}

// A post says what was dead-lettered and why, without the message.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var got DeadLetter
	var header http.Header
	var path, raw string
	w, log := postLetters(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		raw, header, path = string(body), r.Header, r.URL.String()
		if err := json.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
	}, "a\x1b[2J")
	want := DeadLetter{
		Event: "dead_lettered", Broker: "kafka", ID: "a\x1b[2J", Origin: "orders", Group: "billing", Reason: "exhausted", Error: "https://***@db/ is away",
		ErrorType: "*net.OpError", FirstError: "card <n> declined", Attempts: 4, Replays: 1, LastFailed: "2026-01-31T12:00:00.000Z", Where: "orders.billing.dlq",
	}
	if got != want || strings.Contains(raw, "first_failed") {
		t.Errorf("posted %s", raw)
	}
	if header.Get("Content-Type") != "application/json" || header.Get("Authorization") != "Bearer k3y" || path != "/services/s3cret?token=t0p" {
		t.Errorf("posted to %s with %v", path, header)
	}
	if n := w.Counts(); n.Delivered != 1 || log != "" {
		t.Errorf("%+v, log %s", n, log)
	}
}

// A post is retried after a temporary failure, but not after a permanent one, and redirects are not followed. A dead
// letter that is not posted is logged, and does not keep the next one from being posted.
func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   int
		tries  int // of the first letter
		posted int64
	}{
		{200, 1, 2}, {204, 1, 2}, {500, 3, 1}, {503, 3, 1}, {429, 3, 1}, {408, 3, 1}, {400, 1, 1}, {401, 3, 1}, {404, 3, 1}, {302, 1, 1}, {307, 1, 1},
	} {
		tries, elsewhere := 0, false
		w, log := postLetters(t, func(res http.ResponseWriter, r *http.Request) {
			var d DeadLetter
			switch err := json.NewDecoder(r.Body).Decode(&d); {
			case err != nil:
				t.Error(err)
			case r.URL.Path == "/elsewhere":
				elsewhere = true
			case d.ID == "first":
				tries++
				res.Header().Set("Location", "/elsewhere")
				res.WriteHeader(c.code)
			}
		}, "first", "second")
		if n := w.Counts(); tries != c.tries || elsewhere || n.Delivered != c.posted || n.Delivered+n.Failed != 2 {
			t.Errorf("%d: %d tries, redirected %v, %+v", c.code, tries, elsewhere, n)
		}
		if reported := strings.Contains(log, "dead letter not reported") && strings.Contains(log, "id=first"); reported != (c.posted == 1) {
			t.Errorf("%d: the log has %q", c.code, log)
		}
	}
}

// An unavailable endpoint does not delay messages or fill the log: a full queue is logged once.
func TestAnUnavailableWebhookDelaysNothing(t *testing.T) {
	t.Parallel()
	var out safeBuffer
	u, err := url.Parse("http://127.0.0.1:1/services/s3cret")
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	w := webhookOver(WebhookConfig{URL: u, Log: slog.New(slog.NewTextHandler(&out, nil))}, failingTransport(func() error {
		enter()
		<-leave
		return errors.New("connection refused")
	}), func() backoff.BackOff { return &backoff.StopBackOff{} })
	w.Event(letter("first"))
	<-entered
	for range 1500 {
		w.Event(letter("another"))
	}
	close(leave)
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.End()
	if n := w.Counts(); n.Failed != 1001 || n.Missed != 500 {
		t.Errorf("%+v", n)
	}
	log := out.String()
	if n := strings.Count(log, "queue is full"); n != 1 {
		t.Errorf("a full queue is reported %d times", n)
	}
	if !strings.Contains(log, "not_posted=1501") || strings.Contains(log, "s3cret") {
		t.Errorf("the last line of the log: %s", log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:])
	}
}

type failingTransport func() error

func (f failingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, f() }
