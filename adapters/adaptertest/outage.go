package adaptertest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// outages: a dependency that is away for a while buries nobody.
func outages() []test {
	return []test{
		{name: "AnOutageIsWaitedForAndBuriesNobody", body: outage},
		{name: "AnOutageHoldsUpNoClose", needs: "KeepsAttempts", body: outageAndClose},
		{name: "AHandlerPausesItsSubscription", body: handlerPauses},
	}
}

// knowing is a policy whose retries are over soon, and which knows outages.
func knowing() redeliver.Policy {
	p := quick(2)
	p.Outage = redeliver.Outage{MinKeys: 5, Probe: 100 * time.Millisecond, MaxPause: 400 * time.Millisecond}
	return p
}

// outageChanges are the changes of the subscription that concern outages.
func (b *bench) outageChanges() (told []redeliver.Change) {
	for _, e := range heard[redeliver.SubscriptionChanged](b.journal) {
		if e.Change == redeliver.ChangeOutage || e.Change == redeliver.ChangeProbing || e.Change == redeliver.ChangeOutageOver {
			told = append(told, e.Change)
			if e.Origin != b.origin || e.Group != b.group || e.Detail == "" || (e.Err != nil) != (e.Change == redeliver.ChangeOutage) {
				b.Errorf("told %+v", e)
			}
		}
	}
	return told
}

// away fails as what depends on something that is away. What comes again before the
// outage is known is put aside, uncounted: on a busy machine a few messages would use up
// their retries before five have failed.
func (b *bench) away(a *attempt) error {
	if a.State.Attempts > 0 && !slices.Contains(b.outageChanges(), redeliver.ChangeOutage) {
		return redeliver.Postpone(errDeclined)
	}
	return errDeclined
}

// spared checks that of a message no failure counted but its first, which may have been
// what made the outage known.
func (b *bench) spared() {
	b.Helper()
	for _, a := range b.all() {
		if a.State.Attempts > 1 {
			b.Errorf("%s ran as attempt %d, want 2 at most: it failed in an outage", a.State.ID, a.State.Attempt())
		}
	}
}

// outage: it lasts for ten times as long as the retries of a message do. What fails for
// itself meanwhile is dead-lettered as ever.
func outage(b *bench) {
	const n = 60
	msgs, ids := many(n)
	var well atomic.Bool
	b.start(Config{Policy: knowing(), MaxInFlight: 10}, func(a *attempt) error {
		switch {
		case well.Load():
			return nil
		case a.State.ID == ids[0]:
			return redeliver.Permanent(errDeclined)
		default:
			return b.away(a)
		}
	})
	b.put(msgs...)
	b.await("the sink is told", func() bool { return slices.Contains(b.outageChanges(), redeliver.ChangeOutage) })
	began, before := time.Now(), len(b.all())
	b.await("it is probed for a while", func() bool { return time.Since(began) > 2*time.Second && len(b.all()) > before })
	// Those in flight when it began, twice: a retry may have been under way. And a probe
	// every 400 ms, but for the first.
	if most := before + 2*10 + 2 + int(time.Since(began)/(400*time.Millisecond)); len(b.all()) > most {
		b.Errorf("%d attempts within %s, want at most %d", len(b.all()), time.Since(began), most)
	}
	if slices.Contains(b.outageChanges(), redeliver.ChangeOutageOver) {
		b.Errorf("told %q while it lasts", b.outageChanges())
	}
	well.Store(true)
	b.awaitEnds(ids...)
	committed, dead := b.ended()
	delete(dead, ids[0])
	if len(dead) > 0 {
		b.Errorf("dead-lettered %v", dead)
	}
	if len(committed) < n-1 {
		b.Errorf("%d messages were committed, want %d", len(committed), n-1)
	}
	b.spared()
	b.await("the sink is told of its end", func() bool {
		told := b.outageChanges()
		return told[len(told)-1] == redeliver.ChangeOutageOver
	})
}

// outageAndClose: what is held back comes to the next process, uncounted.
func outageAndClose(b *bench) {
	const n = 30
	msgs, ids := many(n)
	p := b.start(Config{Policy: knowing(), MaxInFlight: 5, DrainTimeout: 50 * time.Second}, b.away)
	b.put(msgs...)
	b.await("the sink is told", func() bool { return slices.Contains(b.outageChanges(), redeliver.ChangeOutage) })
	began := time.Now()
	p.close()
	if took := time.Since(began); took > 40*time.Second { // of its drain timeout
		b.Errorf("closing took %s", took)
	}
	b.start(Config{Policy: knowing()}, succeed)
	b.awaitEnds(ids...)
	if _, dead := b.ended(); len(dead) > 0 {
		b.Errorf("dead-lettered %v", dead)
	}
	b.spared()
}

// handlerPauses: nothing begins in the pause, it counts no attempt, and all messages run after it.
func handlerPauses(b *bench) {
	const n, pause = 20, 2 * time.Second
	msgs, ids := many(n)
	var answered atomic.Pointer[time.Time]
	b.start(Config{Policy: quick(1), MaxInFlight: 5}, func(*attempt) error {
		if now := time.Now(); answered.CompareAndSwap(nil, &now) {
			return redeliver.Pause(errDeclined, pause)
		}
		return nil
	})
	changed := func(change redeliver.Change) bool {
		return slices.ContainsFunc(heard[redeliver.SubscriptionChanged](b.journal), func(e redeliver.SubscriptionChanged) bool { return e.Change == change })
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
