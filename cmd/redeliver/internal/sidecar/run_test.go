package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// handlerFunc is a function as a handler.
type handlerFunc func(ctx context.Context, m *Message) error

func (f handlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

var errGone = &UnreachedError{errors.New("nobody listens")}

// The sidecar waits for an absent handler, and then postpones the message without counting an attempt. The handler's
// first answer counts.
func TestReach(t *testing.T) {
	for name, c := range map[string]struct {
		back    time.Duration // when the handler becomes available
		timeout time.Duration
		ending  time.Duration
		want    string
		least   time.Duration
		most    time.Duration
	}{
		"at once":          {want: "declined", timeout: time.Hour},
		"after a restart":  {back: 10 * time.Second, timeout: time.Hour, want: "declined", least: 10 * time.Second, most: 11 * time.Second},
		"never":            {back: time.Hour, timeout: time.Hour, want: "postponed nobody listens", least: maxTries, most: maxTries},
		"a short attempt":  {back: time.Hour, timeout: 4 * time.Second, want: "postponed nobody listens", least: 2 * time.Second, most: 2 * time.Second},
		"it ends meantime": {back: time.Hour, timeout: time.Hour, ending: 3 * time.Second, want: "postponed nobody listens", least: 3 * time.Second, most: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				h := NewHealth("orders", brokerurl.Kafka, nil)
				ending := make(chan struct{})
				r := &runner{Config: Config{Health: h, Handler: handlerFunc(func(context.Context, *Message) error {
					if time.Since(began) < c.back {
						return errGone
					}
					return errors.New("declined")
				})}, ending: ending}
				if c.ending > 0 {
					time.AfterFunc(c.ending, func() { close(ending) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				err := r.handleOne(ctx, newMessage())
				if took := time.Since(began); inWords(err) != c.want || took < c.least || took > c.most {
					t.Errorf("%s after %s", inWords(err), took)
				}
				if ready := len(h.Why()) == 0; ready != (c.want == "declined") {
					t.Errorf("it is ready: %t", ready)
				}
			})
		})
	}
}

// The end of the attempt ends the wait.
func TestTheWaitForTheHandlerEndsWithTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := errors.New("lost")
		time.AfterFunc(time.Second, func() { cancel(lost) })
		r := &runner{Config: Config{Health: NewHealth("orders", brokerurl.Kafka, nil), Handler: handlerFunc(func(context.Context, *Message) error { return errGone })}}
		if err := r.handleOne(ctx, newMessage()); !errors.Is(err, lost) {
			t.Errorf("%v", err)
		}
	})
}

// A cancelled call does not show whether the handler is reached. A change is reported once.
func TestReachReportsChanges(t *testing.T) {
	var log strings.Builder
	var says error
	h := NewHealth("orders", brokerurl.Kafka, nil)
	r := &runner{
		Config: Config{Health: h, Log: slog.New(slog.NewTextHandler(&log, nil)), Handler: handlerFunc(func(context.Context, *Message) error { return says })},
		ending: make(chan struct{}),
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(&redeliver.TimeoutError{After: time.Minute})
	for i, s := range []struct {
		ctx    context.Context
		says   error
		ready  bool
		warned int
		again  int
	}{
		{t.Context(), errors.New("declined"), true, 0, 0},
		{over, errGone, false, 1, 0},
		{over, errGone, false, 1, 0},
		{over, context.Cause(over), false, 1, 0},
		{over, nil, true, 1, 1},
		{over, errGone, false, 2, 1},
		{t.Context(), errors.New("declined"), true, 2, 2},
	} {
		says = s.says
		_ = r.handleOne(s.ctx, newMessage())
		warned, again := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "reached again")
		if ready := len(h.Why()) == 0; ready != s.ready || warned != s.warned || again != s.again {
			t.Errorf("step %d: ready %t, after\n%s", i, ready, log.String())
		}
	}
	if text := log.String(); !strings.Contains(text, "nobody listens") {
		t.Error(text)
	}
}

// Cancelled calls are awaited for a limited time.
func TestCancelledCallsAreAwaited(t *testing.T) {
	for _, c := range []struct{ takes, want time.Duration }{{0, 0}, {time.Second, time.Second}, {time.Hour, 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			entered := make(chan struct{})
			r := &runner{Config: Config{Health: NewHealth("orders", brokerurl.Kafka, nil), Handler: handlerFunc(func(context.Context, *Message) error {
				close(entered)
				<-time.After(c.takes)
				return nil
			})}}
			done := make(chan error, 1)
			go func() { done <- r.handleOne(t.Context(), newMessage()) }()
			<-entered
			began := time.Now()
			r.awaitCalls()
			if took := time.Since(began); took != c.want {
				t.Errorf("a call takes %s, and it is left after %s", c.takes, took)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A problem of a queue is reported only for that queue, whatever the names of others.
func TestHealthOfOneQueue(t *testing.T) {
	for broker, waits := range map[brokerurl.Broker]string{
		brokerurl.RabbitMQ: "arn:shop:orders-eu arn:shop:orders http://sqs/1/orders shop/orders shop:orders",
		brokerurl.SQS:      "arn:shop:orders-eu shop/orders shop:orders",
	} {
		h := NewHealth("orders", broker, []string{"orders", "shop/orders", "shop:orders", "arn:shop:orders", "arn:shop:orders-eu", "http://sqs/1/orders"})
		h.record(redeliver.SubscriptionChanged{Origin: "orders", Change: "consuming"})
		var got []string
		for _, why := range h.Why() {
			got = append(got, strings.TrimSuffix(why, ": not consumed yet"))
		}
		if text := strings.Join(got, " "); text != waits {
			t.Errorf("%s: of %s nothing is read, want %s", broker, text, waits)
		}
	}
}

func TestHealth(t *testing.T) {
	h := NewHealth("orders", brokerurl.SQS, []string{"orders", "https://sqs.eu-west-1.amazonaws.com/1/refunds"})
	var events int
	sink := h.sink(redeliver.SinkFunc(func(redeliver.Event) { events++ }))
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		HealthPages(h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	changed := func(origin, change string) func() {
		return func() {
			sink.Event(redeliver.SubscriptionChanged{Origin: origin, Change: redeliver.Change(change), Err: errors.New("dial http://user:secret@host: refused")})
		}
	}
	steps := []struct {
		do   func()
		want string
	}{
		{func() {}, "https://sqs.eu-west-1.amazonaws.com/1/refunds: not consumed yet\norders: not consumed yet"},
		{changed("orders", "group paused"), "https://sqs.eu-west-1.amazonaws.com/1/refunds: not consumed yet"},
		{changed("refunds", "consuming"), "ok"},
		{changed("orders", "throttled"), "ok"},
		{changed("orders", "outage"), "orders: outage: dial http://***@host: refused"},
		{changed("orders", "probing"), "orders: outage: dial http://***@host: refused"},
		{changed("orders", "outage over"), "ok"},
		{changed("orders", "disconnected"), "orders: disconnected"},
		{changed("orders", "assigned"), "ok"},
		{changed("orders", "intake paused"), "orders: intake paused"},
		{changed("orders", "intake resumed"), "ok"},
		{changed("orders", "intake paused"), "orders: intake paused"},
		{changed("orders", "an operation fails"), "orders: an operation fails: \norders: intake paused"},
		{changed("orders", "consuming"), "orders: an operation fails: \norders: intake paused"},
		{changed("orders", "intake resumed"), "orders: an operation fails:"},
		{changed("orders", "an operation works again"), "ok"},
		{func() { h.reached(&UnreachedError{errors.New("dial http://user:secret@host: refused")}) }, "dial http://***@host: refused"},
		{func() { h.reached(nil) }, "ok"},
		{func() { h.end() }, "the process is ending"},
	}
	for i, s := range steps {
		s.do()
		code, text := ask("/readyz")
		if text != s.want || (code == http.StatusOK) != (s.want == "ok") {
			t.Errorf("step %d: %d %q, want %q", i, code, text, s.want)
		}
		if code, text := ask("/healthz"); code != http.StatusOK || text != "ok" {
			t.Errorf("step %d: /healthz says %d %q", i, code, text)
		}
	}
	if events != 15 {
		t.Errorf("%d events were passed on", events)
	}
	if code, _ := ask("/"); code != http.StatusNotFound {
		t.Errorf("/ is %d", code)
	}
}
