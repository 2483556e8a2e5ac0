package adaptertest

import (
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// throttles tests that an unavailable dependency is not overloaded.
func throttles() []test {
	return []test{
		{name: "MessagesInFlightShrinkWhileMessagesFail", needs: "NoHeadOfLineBlocking", body: shrinks},
		{name: "AttemptsBeginAtTheRate", body: rateLimited},
	}
}

// rateLimited tests that messages that wait because of Policy.Rate are not lost, and that the wait counts as no attempt.
func rateLimited(b *fixture) {
	const n = 20
	p := quickPolicy(1)
	p.Rate = redeliver.Rate{PerSecond: 20, Burst: 1}
	b.start(Config{Policy: p}, declineOnly("m-000"))
	_, ids := numberedMessages(n)
	b.handled(ids...)
	b.wantEach(1, ids[1:]...)
	b.wantRuns(ids[0], 2)
	b.checkDeadLetter(redeliver.ReasonExhausted, 2)
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
	// 20 more begin after the first, each 50 ms after the previous one. The first handler's goroutine may have
	// started late.
	if took, minTime := last.Sub(first), n*50*time.Millisecond/2; took < minTime {
		b.Errorf("%d attempts began within %s, want at least %s", len(all), took, minTime)
	}
}

// shrinks tests that fewer messages run while they fail. Later growth takes too long here; redelivertest tests it.
func shrinks(b *fixture) {
	const minInFlight, most, n = 2, 16, 60
	msgs, ids := numberedMessages(n)
	var now, running atomic.Int64 // running: now, when an attempt began last
	var isUp atomic.Bool
	b.start(Config{Policy: quickPolicy(1000), MaxInFlight: most, MinInFlight: minInFlight}, func(*attempt) error {
		running.Store(now.Add(1))
		work := time.NewTimer(50 * time.Millisecond)
		defer work.Stop()
		<-work.C
		now.Add(-1)
		if isUp.Load() {
			return nil
		}
		return errHandler
	})
	b.put(msgs...)
	b.await("the sink gets the change", func() bool { return len(b.changesOf(redeliver.ChangeThrottled)) > 0 })
	reported := b.changesOf(redeliver.ChangeThrottled)
	if len(reported) != 1 || reported[0].Origin != b.origin || reported[0].Group != b.group || reported[0].Detail == "" {
		b.Errorf("reported %+v", reported)
	}
	low := 0 // attempts in a row with no more than minInFlight in flight
	seen := len(b.all())
	b.await("at most minInFlight are in flight", func() bool {
		if all := len(b.all()); all > seen {
			seen = all
			if running.Load() <= minInFlight {
				low++
			} else {
				low = 0
			}
		}
		return low >= 3*minInFlight
	})
	isUp.Store(true)
	b.awaitEnds(ids...)
	b.dead(0)
}
