package adaptertest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// outages tests that no message goes to the DLQ because a dependency is unavailable.
func outages() []test {
	return []test{
		{name: "AnOutageDeadLettersNothing", body: outage},
		{name: "AnOutageDoesNotDelayClose", needs: "KeepsAttempts", body: outageAndClose},
		{name: "MessagesAtFaultReportNoOutage", body: messagesAtFault},
		{name: "AHandlerPausesItsSubscription", body: handlerPauses},
		{name: "AFloodOfDeadLettersPauses", body: flood},
	}
}

// outagePolicy returns a policy with few retries that detects outages.
func outagePolicy() redeliver.Policy {
	p := quickPolicy(2)
	p.Outage = redeliver.Outage{MinKeys: 5, Probe: 100 * time.Millisecond, MaxPause: 400 * time.Millisecond}
	return p
}

// outageChanges returns the changes of the subscription that report outages.
func (b *fixture) outageChanges() (changes []redeliver.Change) {
	for _, e := range eventsOf[redeliver.SubscriptionChanged](b.journal) {
		if e.Change == redeliver.ChangeOutage || e.Change == redeliver.ChangeProbing || e.Change == redeliver.ChangeOutageOver {
			changes = append(changes, e.Change)
			if e.Origin != b.origin || e.Group != b.group || e.Detail == "" || (e.Err != nil) != (e.Change == redeliver.ChangeOutage) {
				b.Errorf("reported %+v", e)
			}
		}
	}
	return changes
}

// failDuringOutage fails as if a dependency were unavailable. A message that comes again before the outage is
// detected is postponed: on a busy machine a few messages would use up their retries before five have failed.
func (b *fixture) failDuringOutage(a *attempt) error {
	if a.State.Attempts > 0 && !slices.Contains(b.outageChanges(), redeliver.ChangeOutage) {
		return redeliver.Postpone(errHandler)
	}
	return errHandler
}

// checkOneFailure checks that at most the first failure of a message counted, which may have revealed the outage.
func (b *fixture) checkOneFailure() {
	b.Helper()
	for _, a := range b.all() {
		if a.State.Attempts > 1 {
			b.Errorf("%s ran as attempt %d, want 2 at most: it failed in an outage", a.State.ID, a.State.Attempt())
		}
	}
}

// outage has an outage that lasts ten times as long as the retries of a message. A message that fails for another reason must go to
// the DLQ as usual.
func outage(b *fixture) {
	const n = 60
	msgs, ids := numberedMessages(n)
	var isUp atomic.Bool
	b.start(Config{Policy: outagePolicy(), MaxInFlight: 10}, func(a *attempt) error {
		switch {
		case isUp.Load():
			return nil
		case a.State.ID == ids[0]:
			return redeliver.Permanent(errHandler)
		default:
			return b.failDuringOutage(a)
		}
	})
	b.put(msgs...)
	b.await("the sink gets the change", func() bool { return slices.Contains(b.outageChanges(), redeliver.ChangeOutage) })
	began, before := time.Now(), len(b.all())
	b.await("it is probed for a while", func() bool { return time.Since(began) > 2*time.Second && len(b.all()) > before })
	// Twice MaxInFlight, because a retry may have been on its way, and a probe every 400 ms. The first two come sooner.
	if maxAttempts := before + 2*10 + 2 + int(time.Since(began)/(400*time.Millisecond)); len(b.all()) > maxAttempts {
		b.Errorf("%d attempts within %s, want at most %d", len(b.all()), time.Since(began), maxAttempts)
	}
	if slices.Contains(b.outageChanges(), redeliver.ChangeOutageOver) {
		b.Errorf("reported %q while it lasts", b.outageChanges())
	}
	isUp.Store(true)
	b.awaitEnds(ids...)
	committed, dead := b.ended()
	delete(dead, ids[0])
	if len(dead) > 0 {
		b.Errorf("dead-lettered %v", dead)
	}
	if len(committed) < n-1 {
		b.Errorf("%d messages were committed, want %d", len(committed), n-1)
	}
	b.checkOneFailure()
	b.await("the sink gets its end", func() bool {
		changes := b.outageChanges()
		return changes[len(changes)-1] == redeliver.ChangeOutageOver
	})
}

// outageAndClose closes the process in an outage. Its messages come to the next process. At most one failure
// of each counts.
func outageAndClose(b *fixture) {
	const n = 30
	msgs, ids := numberedMessages(n)
	p := b.start(Config{Policy: outagePolicy(), MaxInFlight: 5, DrainTimeout: 40 * time.Second}, b.failDuringOutage)
	b.put(msgs...)
	b.await("the sink gets the change", func() bool { return slices.Contains(b.outageChanges(), redeliver.ChangeOutage) })
	began := time.Now()
	p.close()
	if took := time.Since(began); took > 35*time.Second { // of the 40 s allowed, the most that share groups take
		b.Errorf("closing took %s", took)
	}
	b.start(Config{Policy: outagePolicy()}, succeed)
	b.awaitEnds(ids...)
	if _, dead := b.ended(); len(dead) > 0 {
		b.Errorf("dead-lettered %v", dead)
	}
	b.checkOneFailure()
}

// messagesAtFault fails messages of many keys with one error. Classify says that the messages are the cause.
func messagesAtFault(b *fixture) {
	msgs, ids := numberedMessages(20)
	p := outagePolicy()
	p.MaxRetries = 1
	p.Classify = func(error) redeliver.Class { return redeliver.Class{MessageAtFault: true} }
	b.start(Config{Policy: p, MaxInFlight: 10}, func(*attempt) error { return errHandler })
	b.put(msgs...)
	b.awaitEnds(ids...)
	if changes := b.outageChanges(); len(changes) > 0 {
		b.Errorf("reported %q", changes)
	}
	for _, m := range b.dead(len(ids)) {
		b.checkReason(b.deadLetterState(m), redeliver.ReasonExhausted, 2)
	}
}

// flood tests that nothing begins for a time after too many dead letters. Then one message at a time runs, and all run when enough
// have succeeded.
func flood(b *fixture) {
	msgs, ids := numberedMessages(40)
	var isUp atomic.Bool
	p := quickPolicy(1)
	p.DeadLetterRate = redeliver.DeadLetterRate{Max: 3, Window: time.Minute, Pause: time.Second, Probes: 2}
	b.start(Config{Policy: p, MaxInFlight: 2}, func(*attempt) error {
		if isUp.Load() {
			return nil
		}
		return redeliver.Permanent(errHandler)
	})
	changed := func(change redeliver.Change) bool { return len(b.changesOf(change)) > 0 }
	b.put(msgs...)
	b.await("the flood", func() bool { return changed(redeliver.ChangeFlood) })
	isUp.Store(true)
	b.awaitEnds(ids...)
	b.await("its end", func() bool { return changed(redeliver.ChangeFloodOver) })
	if _, dead := b.ended(); len(dead) < 4 || len(dead) > 20 {
		b.Errorf("dead-lettered %d of %d", len(dead), len(ids))
	}
}

// handlerPauses tests that nothing begins in a pause that a handler asks for, that the pause counts no attempt, and that all messages
// run after it.
func handlerPauses(b *fixture) {
	const n, pause = 20, 2 * time.Second
	msgs, ids := numberedMessages(n)
	var answered atomic.Pointer[time.Time]
	b.start(Config{Policy: quickPolicy(1), MaxInFlight: 5}, func(*attempt) error {
		if now := time.Now(); answered.CompareAndSwap(nil, &now) {
			return redeliver.Pause(errHandler, pause)
		}
		return nil
	})
	changed := func(change redeliver.Change) bool {
		return slices.ContainsFunc(eventsOf[redeliver.SubscriptionChanged](b.journal), func(e redeliver.SubscriptionChanged) bool { return e.Change == change })
	}
	b.put(msgs[0])
	b.await("the pause", func() bool { return changed(redeliver.ChangePaused) })
	b.put(msgs[1:]...)
	b.awaitEnds(ids...)
	b.await("the end of the pause", func() bool { return changed(redeliver.ChangeResumed) })
	over := answered.Load().Add(pause)
	for _, a := range b.all()[1:] {
		if a.Began.Before(over) {
			b.Errorf("%s began %s before the pause was over", a.State.ID, over.Sub(a.Began))
		}
		if a.State.Attempt() != 1 {
			b.Errorf("%s ran as attempt %d, want 1", a.State.ID, a.State.Attempt())
		}
	}
	if _, dead := b.ended(); len(dead) > 0 {
		b.Errorf("dead-lettered %v", dead)
	}
}
