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

// verdicts: what ends a message early, or makes it wait otherwise than planned.
func verdicts() []test {
	return []test{
		{name: "PermanentGoesToTheDLQAtOnce", body: permanent},
		{name: "ClassifyIsHeeded", body: classified},
		{name: "RetryAfterIsHonoured", body: retryAfter},
		{name: "ARetryAfterThatCannotBeHeldIsUnschedulable", body: unschedulable},
		{name: "UndecodableGoesToTheDLQAsItIs", body: undecodable},
		{name: "APanicIsAnAttemptAndEndsAsPanic", body: panics},
		{name: "AHandlerThatNeverReturnsEndsAsTimeout", body: neverReturns},
		{name: "AHandlerExtendsItsAttempt", body: extended},
		{name: "WhatIsInvalidNeverRuns", body: invalidated},
		{name: "WhatIsInvalidByItsKeyNeverRuns", needs: "PerKey", body: invalidByKey},
		{name: "WhatWouldPassMaxAgeIsExpired", body: expired},
	}
}

func permanent(b *bench) {
	b.start(Config{Policy: quick(3)}, func(*attempt) error { return fmt.Errorf("no use: %w", redeliver.Permanent(errDeclined)) })
	b.handled("a")
	b.wantRuns("a", 1)
	b.buried(redeliver.ReasonPermanent, 1)
}

func classified(b *bench) {
	errNoUse, errOnce := errors.New("no use"), errors.New("once more")
	p := quick(3)
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
	b.noneEarlier(always(300*time.Millisecond), "once")
	for _, m := range b.dead(2) {
		if st := b.why(m); st.ID == "permanent" {
			b.buriedAs(st, redeliver.ReasonPermanent, 1)
		} else {
			b.buriedAs(st, redeliver.ReasonExhausted, 2)
		}
	}
}

func retryAfter(b *bench) {
	slow := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour}}
	b.start(Config{Policy: slow}, func(*attempt) error { return redeliver.RetryAfter(errDeclined, 400*time.Millisecond) })
	b.put(named("a")...)
	b.awaitEnds("a") // and not in an hour
	b.wantRuns("a", 2)
	b.noneEarlier(always(400*time.Millisecond), "a")
	b.buried(redeliver.ReasonExhausted, 2)
}

func unschedulable(b *bench) {
	b.start(Config{Policy: quick(3)}, func(a *attempt) error {
		if a.State.ID == "neighbour" {
			return nil
		}
		return redeliver.RetryAfter(errDeclined, redeliver.MaxWait+time.Hour)
	})
	b.handled("a", "neighbour")
	b.wantRuns("a", 1)
	b.buried(redeliver.ReasonUnschedulable, 1)
}

func undecodable(b *bench) {
	b.start(Config{Policy: quick(3)}, func(a *attempt) error {
		if bytes.Contains(a.Payload, []byte(Undecodable)) {
			b.Errorf("the handler got %q", a.Payload)
		}
		return nil
	})
	bad := Message{Body: []byte(Undecodable), Headers: []Header{{"trace", []byte("t-1")}}}
	msgs := append(named("before"), bad, bad)
	b.put(b.underOneKey(append(msgs, named("behind")...))...)
	b.awaitEnds("before", "behind")
	awaitEvents[redeliver.DeadLettered](b, 2)
	for _, m := range b.dead(2) {
		if string(m.Body) != Undecodable {
			b.Errorf("the dead letter is %q, want its bytes as they were", m.Body)
		}
		b.sameHeaders("the dead letter", m.Headers, bad.Headers)
		if st := b.why(m); st.Reason != redeliver.ReasonUndecodable || st.Attempts != 0 || st.Error == "" {
			b.Errorf("the dead letter says %q after %d attempts: %q; want undecodable after none, and why", st.Reason, st.Attempts, st.Error)
		}
	}
}

func panics(b *bench) {
	b.start(Config{Policy: quick(1)}, func(a *attempt) error {
		if a.State.ID == "a" {
			panic("index out of range")
		}
		return nil
	})
	b.put(b.underOneKey(named("a", "neighbour"))...)
	b.awaitEnds("a", "neighbour")
	b.wantRuns("a", 2)
	b.wantRuns("neighbour", 1)
	if st := b.buried(redeliver.ReasonPanic, 2); !strings.Contains(st.Error, "index out of range") {
		b.Errorf("the dead letter says %q, want what was panicked with", st.Error)
	}
}

func neverReturns(b *bench) {
	p := quick(1)
	p.Timeout = 200 * time.Millisecond
	b.start(Config{Policy: p}, func(a *attempt) error {
		if a.State.ID != "a" {
			return nil
		}
		b.hold(a.Msg.Context().Done())
		if cause := context.Cause(a.Msg.Context()); !errors.Is(cause, redeliver.ErrTimeout) {
			b.Errorf("the context of attempt %d ended with %v, want a timeout", a.State.Attempt(), cause)
		}
		<-b.Context().Done() // the test's: it goes on whatever it is told
		return nil
	})
	b.put(b.underOneKey(named("a", "neighbour", "another"))...)
	b.awaitEnds("a", "neighbour", "another")
	b.wantRuns("a", 2)
	b.buried(redeliver.ReasonTimeout, 2)
	awaitEvents[redeliver.HandlerStuck](b, 2)
}

// extending is a policy with a short Timeout, and a handler's time that is longer.
func extending() (p redeliver.Policy, takes time.Duration) {
	p = quick(1)
	p.Timeout, p.MaxTimeout = time.Second, time.Minute
	return p, 1500 * time.Millisecond
}

// works takes time, and fails when ctx ends before.
func works(ctx context.Context, takes time.Duration) error {
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

// extended: where a lock is renewed meanwhile, it is renewed for as long.
func extended(b *bench) {
	p, takes := extending()
	b.start(Config{Policy: p}, func(a *attempt) error { return works(a.Msg.Context(), takes) })
	b.handled("a", "b")
	b.wantRuns("a", 1)
	b.wantRuns("b", 1)
	b.dead(0)
}

func invalidated(b *bench) {
	p := quick(3)
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
		st := b.why(m)
		want := map[string]int{"gone": 0, "going": 1}[st.ID]
		b.buriedAs(st, redeliver.ReasonInvalidated, want)
		if !strings.Contains(st.Error, "the tenant is gone") {
			b.Errorf("%s: the dead letter says %q, want why it is invalid", st.ID, st.Error)
		}
	}
}

// invalidByKey: where a message has a key, Policy.Invalid is told it, in whatever form the
// harness writes it.
func invalidByKey(b *bench) {
	p := byKey(1)
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
		b.buriedAs(b.why(m), redeliver.ReasonInvalidated, 0)
	}
}

func expired(b *bench) {
	p := redeliver.Policy{
		MaxRetries: 3, Backoff: redeliver.Steps(100*time.Millisecond, time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour},
		MaxAge: 30 * time.Minute,
	}
	b.start(Config{Policy: p}, decline)
	b.put(named("a")...)
	b.awaitEnds("a") // now, and not when it has expired
	b.wantRuns("a", 2)
	b.buried(redeliver.ReasonExpired, 2)
}
