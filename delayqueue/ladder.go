package delayqueue

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// Ladder is the levels of a subscription, ascending.
type Ladder []time.Duration

// unlisted is the ladder of a backoff that cannot tell its delays.
var unlisted = Ladder{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}

// fine are the rungs below a first delay that is longer than they are, so that
// what is left after the hops is held for about a second at most; coarse are
// those above the last delay, so that a long RetryAfter needs few hops.
var (
	fine   = Ladder{time.Second, 5 * time.Second}
	coarse = Ladder{time.Minute, 10 * time.Minute, time.Hour}
)

// NewLadder makes the ladder of a policy: Policy.Levels as they are, else the
// policy's own delays with the fine and coarse rungs, thinned to
// Policy.MaxLevels so that the planned retries need the fewest hops.
func NewLadder(p redeliver.Policy) Ladder {
	p = p.WithDefaults()
	if len(p.Levels) > 0 {
		return slices.Clone(Ladder(p.Levels))
	}
	delays, _, ok := p.Delays()
	if !ok {
		return thin(unlisted, unlisted, p.MaxLevels)
	}
	if len(delays) == 0 { // no retry is planned, but a handler may still postpone
		return thin(Ladder{time.Second, time.Minute}, nil, p.MaxLevels)
	}
	first, last := slices.Min(delays), slices.Max(delays)
	rungs := make(Ladder, 0, len(delays)+len(fine)+len(coarse))
	for _, d := range delays {
		rungs = append(rungs, d.Round(time.Millisecond))
	}
	for _, d := range fine {
		if d < first {
			rungs = append(rungs, d)
		}
	}
	for _, d := range coarse {
		if d > last {
			rungs = append(rungs, d)
		}
	}
	slices.Sort(rungs)
	return thin(slices.Compact(rungs), delays, p.MaxLevels)
}

// thin takes rungs away, one at a time, until most are left: always the one
// whose loss costs the planned delays the fewest additional hops and, among
// equals, the fewest for an hour. The smallest rung stays: it bounds the hold.
func thin(rungs Ladder, delays []time.Duration, most int) Ladder {
	rungs = slices.Clone(rungs)
	// Many retries may share a few delays (RocketMQHTTP has 288 of one).
	weight := make(map[time.Duration]int)
	for _, d := range delays {
		weight[d]++
	}
	for len(rungs) > max(1, most) {
		drop, cost := 1, int(^uint(0)>>1)
		for i := 1; i < len(rungs); i++ {
			rest := slices.Delete(slices.Clone(rungs), i, i+1)
			c := len(rest.Path(time.Hour))
			for d, n := range weight {
				c += 1000 * n * len(rest.Path(d))
			}
			if c < cost {
				drop, cost = i, c
			}
		}
		rungs = slices.Delete(rungs, drop, drop+1)
	}
	return rungs
}

// Next is the level on which a message waits that may run after remaining: the
// largest that fits. A level that is longer by at most slack fits too, so that
// the time between a decision and its write does not send a planned wait down
// the ladder; an adapter whose levels cannot let a message go before they are
// over adds up to slack of lateness by it. ok is false when the rest is to be held.
func (l Ladder) Next(remaining, slack time.Duration) (level time.Duration, ok bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i] <= remaining+min(slack, l[i]/10) {
			return l[i], true
		}
	}
	return 0, false
}

// Path is the levels on which a wait of d is spent, one after another. What it
// leaves is shorter than the smallest level and is held.
func (l Ladder) Path(d time.Duration) []time.Duration {
	var path []time.Duration
	for {
		level, ok := l.Next(d, 0)
		if !ok {
			return path
		}
		path = append(path, level)
		d -= level
	}
}

// Above is the next longer level than level, or 0 if there is none.
func (l Ladder) Above(level time.Duration) time.Duration {
	for _, d := range l {
		if d > level {
			return d
		}
	}
	return 0
}
