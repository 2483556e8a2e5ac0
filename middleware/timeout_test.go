package middleware_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

const (
	ms     = time.Millisecond
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

// run handles msg in a goroutine, as the Router does, and tells how it ended.
func run(h message.HandlerFunc, msg *message.Message) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		produced, err := h(msg)
		done <- answer{produced, err}
	}()
	return done
}

func TestHandlerSeesItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &broker{}
		sub := subscribe(b, redeliver.Policy{Timeout: 30 * second, Backoff: redeliver.Fixed(minute)})
		got := handle(t, sub, func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			<-time.After(second) // the deadline is the attempt's, whenever it is asked for
			if at, ok := ctx.Deadline(); !ok || !at.Equal(start.Add(30*second)) {
				t.Errorf("deadline %s, %v", at, ok)
			}
			child, cancel := context.WithTimeout(ctx, hour)
			defer cancel()
			<-child.Done()
			// What clients look for, and what says more.
			if ctx.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded {
				t.Errorf("the handler's context ended with %v, and one below it with %v", ctx.Err(), child.Err())
			}
			var cause *redeliver.TimeoutError
			if !errors.As(context.Cause(child), &cause) || cause.After != 30*second || time.Since(start) != 30*second {
				t.Errorf("ended after %s, cause %v", time.Since(start), context.Cause(child))
			}
			return []*message.Message{msg}, child.Err()
		})
		if got.err != nil || got.produced != nil {
			t.Errorf("%v, %v", got.produced, got.err)
		}
		st := b.only(t, "level")
		if st.Attempts != 1 || st.ErrorType != "*redeliver.TimeoutError" || !st.Due.Equal(start.Add(90*second)) {
			t.Errorf("written as %+v", st)
		}
		<-time.After(minute)
		if got := b.seen(); !slices.Equal(got, []string{"Attempted", "level confirms", "RetryScheduled"}) {
			t.Errorf("%q: it came back at once, so it is not stuck", got)
		}
		if a := events[redeliver.Attempted](b)[0]; !a.Start.Equal(start) || a.Took != 30*second {
			t.Errorf("from %s, took %s", a.Start.Sub(start), a.Took)
		}
	})
}

func TestSessionDeadlineBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		session, end := context.WithDeadline(t.Context(), start.Add(second))
		defer end()
		_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			if at, ok := msg.Context().Deadline(); !ok || !at.Equal(start.Add(second)) {
				t.Errorf("deadline %s, %v", at, ok)
			}
			return nil, nil
		})(deliver(session, subscribe(&broker{}, redeliver.Policy{})))
		if err != nil {
			t.Error(err)
		}
	})
}

func TestNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		got := handle(t, subscribe(b, redeliver.Policy{Timeout: redeliver.NoTimeout}), func(msg *message.Message) ([]*message.Message, error) {
			if at, ok := msg.Context().Deadline(); ok {
				t.Errorf("deadline %s", at)
			}
			<-time.After(1000 * hour)
			return nil, msg.Context().Err()
		})
		if got.err != nil || len(b.writes()) != 0 {
			t.Errorf("%v, written %+v", got.err, b.writes())
		}
	})
}

// A handler that never returns: the message moves on and is acked, after the
// confirmation and not before, and the handler is counted.
func TestHandlerThatNeverReturns(t *testing.T) {
	for _, late := range []error{nil, errHandler} {
		synctest.Test(t, func(t *testing.T) {
			confirm, release := make(chan struct{}), make(chan struct{})
			b := &broker{refuse: func(context.Context, string) error { <-confirm; return nil }}
			sub := subscribe(b, redeliver.Policy{Timeout: second})
			msg := deliver(t.Context(), sub)
			done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
				<-release
				return []*message.Message{msg}, late
			}), msg)
			<-time.After(20 * second)
			if is(msg) != "open" || len(b.writes()) != 0 {
				t.Errorf("%s before the broker has confirmed", is(msg))
			}
			close(confirm)
			<-msg.Acked()
			if st := b.only(t, "level"); st.Attempts != 1 {
				t.Errorf("written as %+v", st)
			}
			if n := len(events[redeliver.HandlerStuck](b)); n != 0 || sub.Stuck.Load() != 0 {
				t.Errorf("counted as stuck at once: it has no time to come back")
			}
			<-time.After(hour)
			stuck := events[redeliver.HandlerStuck](b)
			if len(stuck) != 1 || stuck[0].Stuck != 1 || stuck[0].Timeout != second || stuck[0].State.Attempt() != 1 || sub.Stuck.Load() != 1 {
				t.Errorf("told %+v, counted %d", stuck, sub.Stuck.Load())
			}
			close(release)
			if got := <-done; got.err != nil || got.produced != nil {
				t.Errorf("the late answer is not ignored: %v, %v", got.produced, got.err)
			}
			told := events[redeliver.LateAnswer](b)
			if len(told) != 1 || told[0].Stuck != 0 || sub.Stuck.Load() != 0 || told[0].Err != late { //nolint:errorlint // the very same
				t.Errorf("told %+v, counted %d", told, sub.Stuck.Load())
			}
			want := []string{"Attempted", "level confirms", "RetryScheduled", "HandlerStuck", "LateAnswer"}
			if got := b.seen(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A handler that comes back at once must wait for the watch: its Router would
// ack a message that nobody has confirmed yet, or one that is lost.
func TestPromptHandlerIsNotAckedBeforeTheConfirmation(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			session, end := context.WithCancel(t.Context())
			confirm := make(chan struct{})
			b := &broker{refuse: func(context.Context, string) error {
				<-confirm
				if lost {
					return errBroker
				}
				return nil
			}}
			done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()
				return nil, nil
			}), deliver(session, subscribe(b, redeliver.Policy{Timeout: second})))
			<-time.After(20 * second)
			if len(done) > 0 {
				t.Error("answered before the broker has confirmed")
			}
			if lost {
				end()
			}
			close(confirm)
			if got := <-done; (got.err != nil) != lost || len(b.writes()) == 1 == lost {
				t.Errorf("lost %v: answered %v, written %+v", lost, got.err, b.writes())
			}
			end()
		})
	}
}

// Stuck handlers are counted for each subscription, not for the Retry they share.
func TestStuckIsCountedPerSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := middleware.Retry()(func(*message.Message) ([]*message.Message, error) { <-release; return nil, nil })
		p := redeliver.Policy{Timeout: second}
		var brokers [2]broker
		for i := range brokers {
			sub := subscribe(&brokers[i], p)
			for range i + 1 {
				run(h, deliver(t.Context(), sub))
			}
		}
		<-time.After(minute)
		for i := range brokers {
			if stuck := events[redeliver.HandlerStuck](&brokers[i]); len(stuck) != i+1 || stuck[i].Stuck != int64(i+1) {
				t.Errorf("subscription %d: %+v", i, stuck)
			}
		}
		close(release)
	})
}

// An immediate retry beside a handler that may still be at it would be two at once.
func TestTimeoutIsNotRetriedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &broker{}
		tries := 0
		got := handle(t, subscribe(b, redeliver.Policy{Timeout: second, Immediate: 2}), func(msg *message.Message) ([]*message.Message, error) {
			tries++
			<-msg.Context().Done()
			return nil, nil // too late
		})
		if st := b.only(t, "level"); got.err != nil || tries != 1 || st.Attempts != 1 || !st.Due.Equal(start.Add(second)) {
			t.Errorf("%v after %d tries, written as %+v", got.err, tries, st)
		}
	})
}

func TestTimeoutOfTheLastRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		handle(t, subscribe(b, redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries}), func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, nil
		})
		if st := b.only(t, "dlq"); st.Reason != redeliver.ReasonTimeout {
			t.Errorf("buried as %+v", st)
		}
	})
}

func TestTimeoutAfterTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, end := context.WithCancel(t.Context())
		b := &broker{}
		msg := deliver(session, subscribe(b, redeliver.Policy{Timeout: second}))
		release := make(chan struct{})
		done := run(middleware.Retry()(func(*message.Message) ([]*message.Message, error) { end(); <-release; return nil, nil }), msg)
		<-msg.Nacked()
		close(release)
		if got := <-done; got.err == nil || len(b.writes()) != 0 || len(events[redeliver.Abandoned](b)) != 1 {
			t.Errorf("%v, %q", got.err, b.seen())
		}
	})
}

// A handler that acked first is done with its message, however long it runs.
func TestTimeoutAfterAnAckByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		msg := deliver(t.Context(), subscribe(b, redeliver.Policy{Timeout: second}))
		done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			<-time.After(minute)
			return nil, nil
		}), msg)
		<-done
		if len(b.writes()) != 0 || is(msg) != "acked" {
			t.Errorf("%s, written %+v", is(msg), b.writes())
		}
	})
}
