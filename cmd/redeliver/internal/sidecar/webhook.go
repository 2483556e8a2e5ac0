package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/errortext"
	"github.com/redeliver/redeliver/observe/hook"
)

// WebhookConfig configures where dead letters are posted. URL is required.
type WebhookConfig struct {
	URL *url.URL
	// Authorization is the value of the header Authorization. Empty for none.
	Authorization string
	// Broker is the broker's name in each post.
	Broker string
	// Log logs dead letters that could not be posted. Required.
	Log *slog.Logger
}

// Webhook posts a report of each dead letter to a URL: its id and reason, not the message itself. Messages do not wait
// for it. It is a [redeliver.Sink] through its Hook.
type Webhook struct {
	*hook.Hook

	c          WebhookConfig
	transport  http.RoundTripper
	newBackoff func() backoff.BackOff // pauses between attempts
	queueFull  atomic.Bool            // the queue is full, and this was logged
}

const (
	// webhookTry is the timeout of one attempt. webhookTries is how long one dead letter is retried. Later ones wait
	// for it.
	webhookTry   = 10 * time.Second
	webhookTries = time.Minute
	// webhookEnd is how long the waiting dead letters may take at the end.
	webhookEnd = 5 * time.Second
)

// NewWebhook returns a webhook that posts one dead letter after another until Close.
func NewWebhook(c WebhookConfig) *Webhook {
	return webhookOver(c, newTransport(&net.Dialer{Timeout: webhookTry / 2}, webhookTry/2, 1, nil), func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond), backoff.WithMaxInterval(15*time.Second),
			backoff.WithMaxElapsedTime(webhookTries))
	})
}

func webhookOver(c WebhookConfig, transport http.RoundTripper, newBackoff func() backoff.BackOff) *Webhook {
	w := &Webhook{c: c, transport: transport, newBackoff: newBackoff}
	w.Hook = hook.OnDeadLetter(w.report, hook.Config{Missed: w.logMissed})
	return w
}

// DeadLetter is the JSON that is posted. The receiver may have no right to read messages, so it contains no key, header
// or body.
type DeadLetter struct {
	Event       string `json:"event"` // "dead_lettered"
	Broker      string `json:"broker"`
	ID          string `json:"id"`
	Origin      string `json:"origin"`
	Group       string `json:"group"`
	Reason      string `json:"reason"`
	Error       string `json:"error,omitempty"` // shortened, without quotations, numbers, ids and credentials in URLs
	ErrorType   string `json:"error_type,omitempty"`
	FirstError  string `json:"first_error,omitempty"` // of the first failure, as Error; empty if they are the same
	Attempts    int    `json:"attempts"`
	Replays     int    `json:"replays"`
	FirstFailed string `json:"first_failed,omitempty"`
	LastFailed  string `json:"last_failed,omitempty"`
	Where       string `json:"where"` // the DLQ
}

// report posts one dead letter until it is accepted or cannot succeed.
func (w *Webhook) report(ctx context.Context, d redeliver.DeadLettered) error {
	s := &d.State
	last, first := errortext.Normalise(s.Error), errortext.Normalise(s.FirstError)
	if first == last { // they differ in an id, for example
		first = ""
	}
	body, err := json.Marshal(DeadLetter{
		Event: "dead_lettered", Broker: w.c.Broker, ID: s.ID, Origin: s.Origin, Group: s.Group, Reason: string(s.Reason), Error: last, ErrorType: s.ErrorType, FirstError: first,
		Attempts: s.Attempts, Replays: s.Replays, FirstFailed: stamp(s.FirstFailed), LastFailed: stamp(s.LastFailed), Where: d.Where,
	})
	if err != nil {
		return err
	}
	err = backoff.Retry(func() error { return w.post(ctx, body) }, backoff.WithContext(w.newBackoff(), ctx))
	if err == nil && w.queueFull.Swap(false) {
		w.c.Log.Info("dead letters are reported again", "to", w.to(), "not_posted", w.notPosted())
	}
	return err
}

// post makes one attempt. The error does not include the URL's path, which is a secret of many receivers.
func (w *Webhook) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, webhookTry)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.URL, req.Host = w.c.URL, w.c.URL.Host
	req.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"redeliver"}}
	if w.c.Authorization != "" {
		req.Header["Authorization"] = []string{w.c.Authorization}
	}
	res, err := w.transport.RoundTrip(req) // does not follow redirects
	if err != nil {
		return fmt.Errorf("it cannot be reached: %w", err)
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxRead) // allows reuse of the connection
	_ = res.Body.Close()
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		return backoff.Permanent(fmt.Errorf("it answered %s, and redirects are not followed", status(code)))
	case isAboutTheWay(code), code >= 500, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return fmt.Errorf("it answered %s", status(code))
	default:
		return backoff.Permanent(fmt.Errorf("it answered %s", status(code)))
	}
}

// logMissed logs a dead letter that was not posted. A full queue is logged once until posts succeed again, so that an
// unavailable endpoint does not fill the log.
func (w *Webhook) logMissed(d redeliver.DeadLettered, why error) {
	if (errors.Is(why, hook.ErrFull) || errors.Is(why, hook.ErrClosed)) && w.queueFull.Swap(true) {
		return
	}
	w.c.Log.Warn("dead letter not reported; it stays in the DLQ", "id", d.State.ID, "origin", d.State.Origin, "where", d.Where,
		"to", w.to(), "error", redeliver.Redact(why.Error()), "not_posted", w.notPosted())
}

// notPosted returns how many dead letters were not posted so far.
func (w *Webhook) notPosted() int64 {
	n := w.Counts()
	return n.Failed + n.Missed
}

// to returns the URL without its secrets.
func (w *Webhook) to() string { return WebhookName(w.c.URL) }

// WebhookName returns the part of a webhook's URL that may be shown.
func WebhookName(u *url.URL) string { return u.Scheme + "://" + u.Host }

// End posts the waiting dead letters for at most webhookEnd, and logs how many were not posted in total.
func (w *Webhook) End() {
	ctx, cancel := context.WithTimeout(context.Background(), webhookEnd)
	defer cancel()
	err := w.Close(ctx)
	if n := w.notPosted(); err != nil || n > 0 {
		w.c.Log.Warn("not all dead letters were reported; they stay in the DLQ", "to", w.to(), "posted", w.Counts().Delivered, "not_posted", n)
	}
}
