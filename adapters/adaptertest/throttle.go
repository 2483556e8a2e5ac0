package adaptertest

import (
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// throttles: a dependency that is away is not hammered (issue of batches, pull and order).
func throttles() []test {
	return []test{
		{name: "WhatIsInFlightShrinksWhileMessagesFail", needs: "SlowHoldsUpNone", body: shrinks},
		{name: "AttemptsBeginAtTheRate", body: paced},
	}
}

// paced: to wait for the rate is no attempt, and loses nothing.
func paced(b *bench) {
	const n = 20
	p := quick(1)
	p.Rate = redeliver.Rate{PerSecond: 20, Burst: 1}
	b.start(Config{Policy: p}, declineOnly("m-000"))
	_, ids := many(n)
	b.handled(ids...)
	b.wantEach(1, ids[1:]...)
	b.wantRuns(ids[0], 2)
	b.buried(redeliver.ReasonExhausted, 2)
	all := b.all()
	first, last := all[0].Began, all[0].Began
	for _, a := range all {
		if a.Began.Before(first) {
			first = a.Began
		}
		if a.Began.After(last) {
			last = a.Began
		}
	}
	// 20 more begin after the first, each 50 ms after the one before. The first handler may have got its goroutine late.
	if took, least := last.Sub(first), n*50*time.Millisecond/2; took < least {
		b.Errorf("%d attempts began within %s, want at least %s", len(all), took, least)
	}
}

// shrinks: that it grows back takes long, and is seen with redelivertest's clock.
func shrinks(b *bench) {
	const least, most, n = 2, 16, 60
	msgs, ids := many(n)
	var now, running atomic.Int64 // running: what ran beside the latest attempt
	var well atomic.Bool
	b.start(Config{Policy: quick(1000), MaxInFlight: most, MinInFlight: least}, func(*attempt) error {
		running.Store(now.Add(1))
		work := time.NewTimer(50 * time.Millisecond)
		defer work.Stop()
		<-work.C
		now.Add(-1)
		if well.Load() {
			return nil
		}
		return errDeclined
	})
	b.put(msgs...)
	b.await("the sink is told", func() bool { return len(b.changes(redeliver.ChangeThrottled)) > 0 })
	told := b.changes(redeliver.ChangeThrottled)
	if len(told) != 1 || told[0].Origin != b.origin || told[0].Group != b.group || told[0].Detail == "" {
		b.Errorf("told %+v", told)
	}
	low := 0 // attempts in a row that saw no more than the least
	seen := len(b.all())
	b.await("no more than the least is in flight", func() bool {
		if all := len(b.all()); all > seen {
			seen = all
			if running.Load() <= least {
				low++
			} else {
				low = 0
			}
		}
		return low >= 3*least
	})
	well.Store(true)
	b.awaitEnds(ids...)
	b.dead(0)
}
