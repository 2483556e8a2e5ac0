package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// otherOutcomes tests outcomes other than a planned retry.
func otherOutcomes() []test {
	return []test{
		{name: "PermanentGoesToTheDLQAtOnce", body: permanent},
		{name: "ClassifyDecides", body: classified},
		{name: "RetryAfterIsHonoured", body: retryAfter},
		{name: "ATooLongRetryAfterIsUnschedulable", body: unschedulable},
		{name: "AnUndecodableMessageGoesToTheDLQUnchanged", router: true, body: undecodableBody},
		{name: "APanicIsAnAttemptAndEndsAsPanic", body: panics},
		{name: "AHandlerThatNeverReturnsEndsAsTimeout", body: neverReturns},
		{name: "AHandlerExtendsItsAttempt", body: extended},
		{name: "AnInvalidMessageNeverRuns", body: invalidated},
		{name: "AMessageWithAnInvalidKeyNeverRuns", needs: "OrderThroughRetries", body: invalidByKey},
		{name: "AMessageBeyondMaxAgeIsExpired", body: expired},
	}
}

func permanent(b *fixture) {
	b.start(Config{Policy: quickPolicy(3)}, func(*attempt) error { return fmt.Errorf("no use: %w", redeliver.Permanent(errHandler)) })
	b.handled("a")
	b.wantRuns("a", 1)
	b.checkDeadLetter(redeliver.ReasonPermanent, 1)
}

func classified(b *fixture) {
	errNoUse, errOnce := errors.New("no use"), errors.New("once more")
	p := quickPolicy(3)
	p.Classify = func(err error) redeliver.Class {
		switch {
		case errors.Is(err, errNoUse):
			return redeliver.Class{Kind: redeliver.KindPermanent}
		case errors.Is(err, errOnce):
			return redeliver.Class{MaxRetries: 1, Backoff: redeliver.Fixed(300 * time.Millisecond)}
		default:
			return redeliver.Class{}
		}
	}
	b.start(Config{Policy: p}, func(a *attempt) error {
		return map[string]error{"permanent": errNoUse, "once": errOnce}[a.State.ID]
	})
	b.handled("permanent", "once", "fine")
	b.wantRuns("permanent", 1)
	b.wantRuns("once", 2)
	b.wantRuns("fine", 1)
	b.checkNotEarly(constantDelay(300*time.Millisecond), "once")
	for _, m := range b.dead(2) {
		if st := b.deadLetterState(m); st.ID == "permanent" {
			b.checkReason(st, redeliver.ReasonPermanent, 1)
		} else {
			b.checkReason(st, redeliver.ReasonExhausted, 2)
		}
	}
}

func retryAfter(b *fixture) {
	slow := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour}}
	b.start(Config{Policy: slow}, func(*attempt) error { return redeliver.RetryAfter(errHandler, 400*time.Millisecond) })
	b.put(namedMessages("a")...)
	b.awaitEnds("a") // not after an hour
	b.wantRuns("a", 2)
	b.checkNotEarly(constantDelay(400*time.Millisecond), "a")
	b.checkDeadLetter(redeliver.ReasonExhausted, 2)
}

func unschedulable(b *fixture) {
	b.start(Config{Policy: quickPolicy(3)}, func(a *attempt) error {
		if a.State.ID == "neighbour" {
			return nil
		}
		return redeliver.RetryAfter(errHandler, redeliver.MaxWait+time.Hour)
	})
	b.handled("a", "neighbour")
	b.wantRuns("a", 1)
	b.checkDeadLetter(redeliver.ReasonUnschedulable, 1)
}

func undecodableBody(b *fixture) {
	b.start(Config{Policy: quickPolicy(3)}, func(a *attempt) error {
		if bytes.Contains(a.Payload, []byte(Undecodable)) {
			b.Errorf("the handler got %q", a.Payload)
		}
		return nil
	})
	bad := Message{Body: []byte(Undecodable), Headers: []Header{{"trace", []byte("t-1")}}}
	msgs := append(namedMessages("before"), bad, bad)
	b.put(b.underOneKey(append(msgs, namedMessages("behind")...))...)
	b.awaitEnds("before", "behind")
	awaitEvents[redeliver.DeadLettered](b, 2)
	for _, m := range b.dead(2) {
		if string(m.Body) != Undecodable {
			b.Errorf("the dead letter is %q, want its bytes unchanged", m.Body)
		}
		b.checkSameHeaders("the dead letter", m.Headers, bad.Headers)
		if st := b.deadLetterState(m); st.Reason != redeliver.ReasonUndecodable || st.Attempts != 0 || st.Error == "" {
			b.Errorf("the dead letter says %q after %d attempts: %q; want undecodable after none, and why", st.Reason, st.Attempts, st.Error)
		}
	}
}

func panics(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, func(a *attempt) error {
		if a.State.ID == "a" {
			panic("index out of range")
		}
		return nil
	})
	b.put(b.underOneKey(namedMessages("a", "neighbour"))...)
	b.awaitEnds("a", "neighbour")
	b.wantRuns("a", 2)
	b.wantRuns("neighbour", 1)
	if st := b.checkDeadLetter(redeliver.ReasonPanic, 2); !strings.Contains(st.Error, "index out of range") || !strings.Contains(st.Error, "outcomes.go:") {
		b.Errorf("the dead letter says %q, want the panic's value, and where", st.Error)
	}
}

func neverReturns(b *fixture) {
	p := quickPolicy(1)
	p.Timeout = 200 * time.Millisecond
	b.start(Config{Policy: p}, func(a *attempt) error {
		if a.State.ID != "a" {
			return nil
		}
		b.hold(a.Ctx.Done())
		if cause := context.Cause(a.Ctx); !errors.Is(cause, redeliver.ErrTimeout) {
			b.Errorf("the context of attempt %d ended with %v, want a timeout", a.State.Attempt(), cause)
		}
		<-b.Context().Done() // the handler ignores its own context
		return nil
	})
	b.put(b.underOneKey(namedMessages("a", "neighbour", "another"))...)
	b.awaitEnds("a", "neighbour", "another")
	b.wantRuns("a", 2)
	b.checkDeadLetter(redeliver.ReasonTimeout, 2)
	awaitEvents[redeliver.HandlerStuck](b, 2)
}

// extendingPolicy returns a policy with a short Timeout, and a longer handler time.
func extendingPolicy() (p redeliver.Policy, takes time.Duration) {
	p = quickPolicy(1)
	p.Timeout, p.MaxTimeout = time.Second, time.Minute
	return p, 1500 * time.Millisecond
}

// workFor extends an attempt, and fails if ctx ends within takes.
func workFor(ctx context.Context, takes time.Duration) error {
	if err := redeliver.Extend(ctx, 30*time.Second); err != nil {
		return err
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// extended tests that an extended attempt keeps its message for as long as it runs, also on a broker that locks messages.
func extended(b *fixture) {
	p, takes := extendingPolicy()
	b.start(Config{Policy: p}, func(a *attempt) error { return workFor(a.Ctx, takes) })
	b.handled("a", "b")
	b.wantRuns("a", 1)
	b.wantRuns("b", 1)
	b.dead(0)
}

func invalidated(b *fixture) {
	p := quickPolicy(3)
	p.Invalid = func(m redeliver.Message) error {
		if string(m.Body) == "gone" || string(m.Body) == "going" && m.State.Attempts > 0 {
			return errors.New("the tenant is gone")
		}
		return nil
	}
	b.start(Config{Policy: p}, declineOnly("going"))
	b.handled("gone", "going", "fine")
	b.wantRuns("gone", 0)
	b.wantRuns("going", 1)
	b.wantRuns("fine", 1)
	for _, m := range b.dead(2) {
		st := b.deadLetterState(m)
		want := map[string]int{"gone": 0, "going": 1}[st.ID]
		b.checkReason(st, redeliver.ReasonInvalidated, want)
		if !strings.Contains(st.Error, "the tenant is gone") {
			b.Errorf("%s: the dead letter says %q, want why it is invalid", st.ID, st.Error)
		}
	}
}

// invalidByKey tests that Policy.Invalid gets the key of a message.
func invalidByKey(b *fixture) {
	p := perKeyPolicy(1)
	var gone atomic.Pointer[string]
	p.Invalid = func(m redeliver.Message) error {
		key := string(m.Key)
		if key == "" {
			b.Errorf("%s has no key", m.State.ID)
		}
		if m.State.ID == "first" {
			gone.Store(&key)
		}
		if is := gone.Load(); is != nil && key == *is {
			return errors.New("the customer is gone")
		}
		return nil
	}
	b.start(Config{Policy: p}, succeed)
	b.put(slices.Concat(keyed("gone", "first"), keyed("stays", "stays"), keyed("gone", "second"))...)
	b.awaitEnds("first", "stays", "second")
	b.wantRuns("first", 0)
	b.wantRuns("second", 0)
	b.wantRuns("stays", 1)
	for _, m := range b.dead(2) {
		b.checkReason(b.deadLetterState(m), redeliver.ReasonInvalidated, 0)
	}
}

func expired(b *fixture) {
	p := redeliver.Policy{
		MaxRetries: 3, Backoff: redeliver.Steps(100*time.Millisecond, time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour},
		MaxAge: 30 * time.Minute,
	}
	b.start(Config{Policy: p}, failHandler)
	b.put(namedMessages("a")...)
	b.awaitEnds("a") // now, not when it has expired
	b.wantRuns("a", 2)
	b.checkDeadLetter(redeliver.ReasonExpired, 2)
}
