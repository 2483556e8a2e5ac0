package amqp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
)

// Only an ack that the broker refuses is counted, and only one that it accepts ends the row.
func TestCountRefusals(t *testing.T) {
	denied := &amqp091.Error{Code: amqp091.AccessRefused, Server: true}
	ended := &amqp091.Error{Code: amqp091.InternalError, Server: true}
	for name, c := range map[string]struct {
		before   int
		err      error
		acked    time.Duration // since the first ack; 0 if there was none
		accepted bool
		want     int
	}{
		"the first":                {0, denied, time.Millisecond, false, 1},
		"one more":                 {3, denied, time.Millisecond, false, 4},
		"one more, much later":     {3, denied, time.Hour, false, 4},
		"the connection is closed": {1, ended, time.Millisecond, false, 2},
		"after others":             {0, denied, time.Minute, false, 0},
		"accepted":                 {5, errAccepted, time.Millisecond, true, 0},
		"no ack":                   {2, denied, 0, false, 2},
		"a lost connection":        {0, &amqp091.Error{Code: amqp091.FrameError}, time.Millisecond, false, 0},
		"a lost one meanwhile":     {2, errors.New("reset"), time.Millisecond, false, 2},
		"a shutdown of the broker": {0, &amqp091.Error{Code: amqp091.ConnectionForced, Server: true}, time.Millisecond, false, 0},
		"a cancelled consumer":     {1, errCancelled, time.Millisecond, false, 1},
	} {
		s := &source{queueConfig: queueConfig{refusals: c.before}, acked: c.acked > 0, firstAck: time.Now().Add(-c.acked)}
		s.accepted.Store(c.accepted)
		if got := s.countRefusals(c.err); got != c.want {
			t.Errorf("%s: %d refusals, want %d", name, got, c.want)
		}
	}
}

// RabbitMQ 4.3 cancels a consumer whose message it takes back, and does not say why.
func TestACancelledConsumerNamesItsOldestMessage(t *testing.T) {
	t.Parallel()
	s := &source{}
	if err := s.cancelled(); !errors.Is(err, errCancelled) || strings.Contains(err.Error(), "consumer_timeout") {
		t.Errorf("without an unacked message: %v", err)
	}
	s.acks.add(&delivery{arrived: time.Now().Add(-20 * time.Second)})
	if err := s.cancelled(); !errors.Is(err, errCancelled) || !strings.Contains(err.Error(), "consumer_timeout: the oldest one has been here for 20s") {
		t.Errorf("with a message of 20 s: %v", err)
	}
}

// The documentation has these pauses.
func TestPausesAfterRefusals(t *testing.T) {
	var pauses []time.Duration
	for n := range 9 {
		cfg := queueConfig{kind: layout.MainQueue, prefetch: 50, refusals: n}
		pauses = append(pauses, cfg.refusalPause())
		if window := cfg.firstWindow(1 << 20); (window == 1) != (n > 0) {
			t.Errorf("after %d refusals the window is %d", n, window)
		}
	}
	if want := []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}; !slices.Equal(pauses, want) {
		t.Errorf("the pauses are %v, want %v", pauses, want)
	}
	if forever := (&queueConfig{refusals: 1 << 40}).refusalPause(); forever != maxRefusalPause {
		t.Errorf("the longest pause is %v", forever)
	}
}

// A cautious source of an ordered queue begins one message, and reads as many as any other: RabbitMQ returns what a channel leaves
// unacked behind what came back before. With its ack a source that had read only one got the next one.
func TestACautiousSourceKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, func([]string, redeliver.State) error { return nil })
	_, in := f.source(true, "a1", "b1", "a2")
	s := newSource(f.r, queueConfig{kind: layout.MainQueue, queue: "orders", prefetch: 50, refusals: 1}, f.server.Ch)
	if s.intake.window != 50 {
		t.Errorf("its window is %d", s.intake.window)
	}
	err := f.ended(f.run(t.Context(), s, in))
	f.mu.Lock()
	defer f.mu.Unlock()
	if !errors.Is(err, errAccepted) || !slices.Equal(f.ran, []string{"a1"}) {
		t.Errorf("it ran %q and ended with %v", f.ran, err)
	}
}
