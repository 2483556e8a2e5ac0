package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestASuccessChangesNothing(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := read(t, b, redelivertest.Config{})
		msg := orders.deliver("1")
		outer := msg.Context()
		out := message.NewMessage("2", []byte("produced"))
		produced, err := middleware.Retry()(func(got *message.Message) ([]*message.Message, error) {
			if got != msg {
				t.Error("the handler got another message")
			}
			return []*message.Message{out}, nil
		})(msg)
		if err != nil || len(produced) != 1 || produced[0] != out {
			t.Errorf("%v, %v", produced, err)
		}
		if !msg.Equals(published("1")) || msg.Context() != outer || settled(msg) != "open" {
			t.Errorf("the message is changed: %+v, %s", msg, settled(msg))
		}
		if got := kinds(orders.reported.list()); !slices.Equal(got, []string{"Attempted"}) {
			t.Errorf("%q", got)
		}
		msg.Ack()
		if got := orders.Outcome("1"); !got.Committed || len(got.Attempts) != 1 {
			t.Error(got)
		}
	})
}

// The Router publishes after the middlewares. A produced message may have the handler's context, which must not end before the message is
// settled.
func TestContextOfProducedMessagesLives(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		msg := read(t, b, redelivertest.Config{}).deliver("1")
		produced, err := middleware.Retry()(func(got *message.Message) ([]*message.Message, error) {
			got.Context().Done()
			out := got.Copy()
			out.SetContext(got.Context())
			return []*message.Message{out}, nil
		})(msg)
		if err != nil {
			t.Fatal(err)
		}
		ctx := produced[0].Context()
		if ctx.Err() != nil {
			t.Errorf("the context of a produced message has ended: %v", ctx.Err())
		}
		msg.Ack()
		<-ctx.Done()
	})
}

// The messages that a failed handler produced are dropped, and the Router acks the failed message, which has moved on.
// The attempt and the message's next place are reported to the sink.
func TestAFailureIsWrittenAndReported(t *testing.T) {
	var nilMap map[string]int
	for _, c := range []struct {
		name    string
		h       func() error
		text    string
		reason  redeliver.Reason
		wait    time.Duration
		attempt int
	}{
		{"error", func() error { return errHandler }, "the bank is closed", "", second, 1},
		{"panic", func() error { panic("boo") }, "panic: boo", "", second, 1},
		{"panic with an error", func() error { panic(errHandler) }, "panic: the bank is closed", "", second, 1},
		{"panic with nil", func() error { panic(nil) }, "panic: panic called with nil argument", "", second, 1}, //nolint:govet // nil panics happen in practice
		{"write to a nil map", func() error { nilMap["a"] = 1; return nil }, "panic: assignment to entry in nil map", "", second, 1},
		{"Permanent", func() error { return redeliver.Permanent(errHandler) }, "the bank is closed", redeliver.ReasonPermanent, 0, 1},
		{"RetryAfter", func() error { return redeliver.RetryAfter(errHandler, 90*second) }, "the bank is closed", "", 90 * second, 1},
		{"Postpone", func() error { return redeliver.Postpone(errHandler) }, "the bank is closed", "", second, 0},
		{"open breaker", func() error { return fmt.Errorf("charge: %w", errors.New("circuit breaker is open")) }, "charge: circuit breaker is open", "", second, 0},
		{"its own cancellation", func() error { return context.Canceled }, "context canceled", "", second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				orders := read(t, b, redelivertest.Config{Policy: redeliver.Policy{Backoff: redeliver.Fixed(second)}})
				produced, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
					return []*message.Message{msg}, c.h()
				})(orders.deliver("1"))
				if err != nil || produced != nil {
					t.Errorf("%v, %v", produced, err)
				}
				at, stored := "RetryScheduled", orders.Waiting()
				switch {
				case c.reason != "":
					at, stored = "DeadLettered", orders.DeadLetters()
				case c.attempt == 0:
					at = "MessagePostponed"
				}
				if len(stored) != 1 || string(stored[0].Message.Payload) != "payload" {
					t.Fatalf("stored: %+v", stored)
				}
				st := stored[0].State
				if !strings.HasPrefix(st.Error, c.text) || st.Reason != c.reason || st.Attempts != c.attempt {
					t.Errorf("written as %+v", st)
				}
				if c.wait > 0 && time.Until(st.Due) != c.wait {
					t.Errorf("due in %s, want %s", time.Until(st.Due), c.wait)
				}
				if got := kinds(orders.reported.list()); !slices.Equal(got, []string{"Attempted", at}) {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

func explode() { panic("boo") }

func TestPanicHasItsStack(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}).
			Handle("orders", func(*message.Message) error { explode(); return nil })
		b.Publish("orders", published("1"))
		var p *redeliver.PanicError
		if got := orders.Outcome("1").Attempts[0].Err; !errors.As(got, &p) || p.Value != "boo" || !strings.Contains(string(p.Stack), "middleware_test.explode") {
			t.Errorf("reported %+v", got)
		}
	})
}

// runtime.Goexit (t.FailNow in a handler) is a failure.
func TestGoexitIsAFailure(t *testing.T) {
	for _, timeout := range []time.Duration{minute, redeliver.NoTimeout} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: timeout, MaxRetries: 2, Immediate: 1, Backoff: redeliver.Fixed(second)}}).
				Handle("orders", func(*message.Message) error {
					runtime.Goexit()
					return nil
				})
			b.Publish("orders", published("1"))
			got := orders.Outcome("1")
			if got.State.Reason != redeliver.ReasonPanic || !strings.HasPrefix(got.State.Error, "panic: the handler called runtime.Goexit in ") || got.Took != second {
				t.Error(got)
			}
			<-time.After(hour) // its time is over, which has no effect
			want := []string{"Attempted", "Attempted", "RetryScheduled", "Attempted", "DeadLettered"}
			if got := kinds(orders.Events()); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestForeignMessage(t *testing.T) {
	msg := message.NewMessage("1", nil)
	_, err := middleware.Retry()(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})(msg)
	if !errors.Is(err, middleware.ErrNoSubscription) || settled(msg) != "open" {
		t.Errorf("%v, %s", err, settled(msg))
	}
}

// When the process or its session ends, no attempt is counted, and the message is neither written nor acked.
func TestEndOfTheSessionIsNoAttempt(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := read(t, b, redelivertest.Config{DrainTimeout: second})
		_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			go func() { _ = orders.client.Close(t.Context()) }()
			<-msg.Context().Done()
			return nil, msg.Context().Err()
		})(orders.deliver("1"))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, middleware.ErrAbandoned) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if reported := only[redeliver.Abandoned](orders.reported.list()); len(reported) != 1 || reported[0].State.Attempts != 0 || reported[0].Err == nil || len(orders.reported.list()) != 2 {
			t.Errorf("reported %q, %+v", kinds(orders.reported.list()), reported)
		}
		if st, _ := redeliver.FromContext(read(t, b, redelivertest.Config{}).next().Context()); st.ID != "1" || st.Attempt() != 1 {
			t.Errorf("the next member gets %+v", st)
		}
	})
}

// When a handler acks or nacks its message itself, its return value makes no second copy, and its Timeout does not count.
func TestFirstAnswerWins(t *testing.T) {
	for _, settle := range []func(*message.Message) bool{(*message.Message).Ack, (*message.Message).Nack} {
		for _, returned := range []error{nil, errHandler, redeliver.Permanent(errHandler)} {
			for _, takes := range []time.Duration{0, minute} {
				redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
					orders := read(t, b, redelivertest.Config{Policy: redeliver.Policy{Timeout: second, Backoff: redeliver.Fixed(hour)}})
					msg := orders.deliver("1")
					produced, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
						settle(msg)
						<-time.After(takes)
						return []*message.Message{msg}, returned
					})(msg)
					if err != nil || (len(produced) > 0) != (returned == nil) {
						t.Errorf("returned %v: answered %v, %v", returned, produced, err)
					}
					waiting, reported := len(orders.Waiting()), kinds(orders.reported.list())
					if how := settled(msg); how == "acked" && (waiting > 0 || !slices.Contains(reported, "Committed")) || how == "nacked" && waiting != 1 || how == "open" {
						t.Errorf("%s by hand, then %v after %s: %d wait, reported %q", how, returned, takes, waiting, reported)
					}
					if slices.Contains(reported, "DeadLettered") || slices.Contains(reported, "HandlerStuck") {
						t.Errorf("reported %q", reported)
					}
				})
			}
		}
	}
}
