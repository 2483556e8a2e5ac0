package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

func TestSuccessAddsNothing(t *testing.T) {
	b := &broker{}
	msg := deliver(t.Context(), subscribe(b, redeliver.Policy{}))
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
	if !msg.Equals(pristine()) || msg.Context() != outer || is(msg) != "open" {
		t.Errorf("the message is changed: %+v, %s", msg, is(msg))
	}
	if got := b.seen(); !slices.Equal(got, []string{"Attempted"}) {
		t.Errorf("%q", got)
	}
}

// The Router publishes after the middlewares: what was produced may carry the
// handler's context, which must live until the message is settled.
func TestContextOfProducedMessagesLives(t *testing.T) {
	msg := deliver(t.Context(), subscribe(&broker{}, redeliver.Policy{}))
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
	msg.Context().(interface{ End(error) }).End(nil) // as its subscriber does with the ack
	if <-ctx.Done(); ctx.Err() == nil {
		t.Error("it outlives its message")
	}
}

func TestFailures(t *testing.T) {
	var nilMap map[string]int
	for _, c := range []struct {
		name    string
		h       func() error
		where   string
		text    string
		reason  redeliver.Reason
		wait    time.Duration
		attempt int
	}{
		{"error", func() error { return errHandler }, "level", "the bank is closed", "", second, 1},
		{"panic", func() error { panic("boo") }, "level", "panic: boo", "", second, 1},
		{"panic with an error", func() error { panic(errHandler) }, "level", "panic: the bank is closed", "", second, 1},
		{"panic with nil", func() error { panic(nil) }, "level", "panic: panic called with nil argument", "", second, 1}, //nolint:govet // it happens
		{"write to a nil map", func() error { nilMap["a"] = 1; return nil }, "level", "panic: assignment to entry in nil map", "", second, 1},
		{"Permanent", func() error { return redeliver.Permanent(errHandler) }, "dlq", "the bank is closed", redeliver.ReasonPermanent, 0, 1},
		{"RetryAfter", func() error { return redeliver.RetryAfter(errHandler, 90*second) }, "level", "the bank is closed", "", 90 * second, 1},
		{"Postpone", func() error { return redeliver.Postpone(errHandler) }, "level", "the bank is closed", "", second, 0},
		{"open breaker", func() error { return fmt.Errorf("charge: %w", errors.New("circuit breaker is open")) }, "level", "charge: circuit breaker is open", "", second, 0},
		{"its own cancellation", func() error { return context.Canceled }, "level", "context canceled", "", second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &broker{}
				got := handle(t, subscribe(b, redeliver.Policy{Backoff: redeliver.Fixed(second)}), func(msg *message.Message) ([]*message.Message, error) {
					return []*message.Message{msg}, c.h()
				})
				if got.err != nil || got.produced != nil {
					t.Errorf("%v, %v: what a failed handler produced is dropped, and the message acked", got.produced, got.err)
				}
				st := b.only(t, c.where)
				if !strings.HasPrefix(st.Error, c.text) || st.Reason != c.reason || st.Attempts != c.attempt {
					t.Errorf("written as %+v", st)
				}
				if c.wait > 0 && !st.Due.Equal(start.Add(c.wait)) {
					t.Errorf("due after %s, want %s", st.Due.Sub(start), c.wait)
				}
				if log := b.seen(); len(log) != 3 || log[0] != "Attempted" || log[1] != c.where+" confirms" {
					t.Errorf("%q: an event of what is not confirmed", log)
				}
			})
		})
	}
}

func explode() { panic("boo") }

func TestPanicHasItsStack(t *testing.T) {
	b := &broker{}
	handle(t, subscribe(b, redeliver.Policy{}), func(*message.Message) ([]*message.Message, error) { explode(); return nil, nil })
	var p *redeliver.PanicError
	if told := events[redeliver.Attempted](b); !errors.As(told[0].Err, &p) || p.Value != "boo" || !strings.Contains(string(p.Stack), "middleware_test.explode") {
		t.Errorf("told %+v", told)
	}
}

// The retries run out: the reason says how the last attempt ended.
func TestExhausted(t *testing.T) {
	for reason, h := range map[redeliver.Reason]message.HandlerFunc{
		redeliver.ReasonExhausted: returns(errHandler),
		redeliver.ReasonPanic:     func(*message.Message) ([]*message.Message, error) { panic("boo") },
	} {
		b := &broker{}
		if got := handle(t, subscribe(b, redeliver.Policy{MaxRetries: redeliver.NoRetries}), h); got.err != nil {
			t.Errorf("%s: %v", reason, got.err)
		}
		if st := b.only(t, "dlq"); st.Reason != reason || st.Attempts != 1 {
			t.Errorf("%s: buried as %+v", reason, st)
		}
	}
}

func TestForeignMessage(t *testing.T) {
	msg := message.NewMessage("1", nil)
	_, err := middleware.Retry()(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})(msg)
	if !errors.Is(err, middleware.ErrNoSubscription) || is(msg) != "open" {
		t.Errorf("%v, %s", err, is(msg))
	}
}

// The end of the session or the process is no fault of the message's: nothing is
// counted or written, and nothing acked.
func TestEndOfTheSessionIsNoAttempt(t *testing.T) {
	session, end := context.WithCancel(t.Context())
	b := &broker{}
	msg := deliver(session, subscribe(b, redeliver.Policy{}))
	_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		end()
		<-msg.Context().Done()
		return nil, msg.Context().Err()
	})(msg)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "session") {
		t.Errorf("%v", err)
	}
	if got := b.seen(); !slices.Equal(got, []string{"Attempted", "Abandoned"}) {
		t.Errorf("%q", got)
	}
	if told := events[redeliver.Abandoned](b); told[0].State.Attempts != 0 || !errors.Is(told[0].Err, context.Canceled) {
		t.Errorf("told %+v", told)
	}
}

// A handler that acks or nacks by hand has answered; what it returns is no
// second answer, and no second copy.
func TestFirstAnswerWins(t *testing.T) {
	for _, immediate := range []int{0, 1} {
		for _, c := range []struct {
			settle func(*message.Message) bool
			want   string
		}{{(*message.Message).Ack, "acked"}, {(*message.Message).Nack, "nacked"}} {
			b := &broker{}
			msg := deliver(t.Context(), subscribe(b, redeliver.Policy{Immediate: immediate}))
			tries := 0
			_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
				if tries++; tries > immediate { // the last one: with Immediate it has a message of its own
					c.settle(msg)
				}
				return nil, errHandler
			})(msg)
			if !errors.Is(err, errHandler) || is(msg) != c.want || len(b.writes()) != 0 || tries != immediate+1 {
				t.Errorf("%s by hand in try %d: %v, %s, written %+v", c.want, tries, err, is(msg), b.writes())
			}
		}
	}
}

func TestNackByHandIsNotUndoneBySuccess(t *testing.T) {
	b := &broker{}
	msg := deliver(t.Context(), subscribe(b, redeliver.Policy{Immediate: 1}))
	tries := 0
	_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		if tries++; tries == 1 {
			return nil, errHandler
		}
		msg.Nack()
		return nil, nil
	})(msg)
	if err != nil || is(msg) != "nacked" {
		t.Errorf("%v, %s", err, is(msg))
	}
}
