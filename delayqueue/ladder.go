package delayqueue

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// Ladder has the levels of a subscription, in ascending order.
type Ladder []time.Duration

// unlistedLadder is the ladder of a backoff that cannot list its delays.
var unlistedLadder = Ladder{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}

// fine are levels that are added below the first delay, so that the rest of a wait after its hops is at most about a second. coarse
// are levels that are added above the last delay, so that a long RetryAfter needs few hops.
var (
	fine   = Ladder{time.Second, 5 * time.Second}
	coarse = Ladder{15 * time.Second, time.Minute, 10 * time.Minute, time.Hour}
)

// NewLadder returns the ladder of a policy: Policy.Levels if they are set. Otherwise it has the policy's delays and
// some shorter and longer levels. Of these it keeps at most Policy.MaxLevels, with which the planned retries need the
// fewest hops.
func NewLadder(p redeliver.Policy) Ladder {
	p = p.WithDefaults()
	if len(p.Levels) > 0 {
		return slices.Clone(Ladder(p.Levels))
	}
	delays, _, ok := p.Delays()
	if !ok {
		return reduceLevels(unlistedLadder, unlistedLadder, p.MaxLevels)
	}
	// A Backoff of another package may list delays that cannot be levels.
	delays = slices.DeleteFunc(slices.Clone(delays), func(d time.Duration) bool {
		return d < time.Millisecond || d > redeliver.MaxWait
	})
	if len(delays) == 0 { // no retry is planned, but a handler may postpone a message
		return reduceLevels(Ladder{time.Second, time.Minute}, nil, p.MaxLevels)
	}
	first, last := slices.Min(delays), slices.Max(delays)
	levels := make(Ladder, 0, len(delays)+len(fine)+len(coarse))
	for _, d := range delays {
		levels = append(levels, d.Truncate(time.Millisecond))
	}
	for _, d := range fine {
		if d < first {
			levels = append(levels, d)
		}
	}
	for _, d := range coarse {
		if d > last {
			levels = append(levels, d)
		}
	}
	slices.Sort(levels)
	return reduceLevels(slices.Compact(levels), delays, p.MaxLevels)
}

// Fingerprint identifies a policy together with its ladder. Messages with another fingerprint may wait on a level that
// this policy would not choose.
func Fingerprint(p redeliver.Policy) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p.Fingerprint(), NewLadder(p))
	return fmt.Sprintf("%016x", h.Sum64())
}

// reduceLevels removes levels, one at a time, until at most maxLevels are left. It removes the level whose loss adds the fewest
// hops to the planned delays and, among equals, to an hour. Then it exchanges levels for removed ones for as long as
// that saves hops. The smallest level stays, because the rest of a wait is shorter than that.
func reduceLevels(all Ladder, delays []time.Duration, maxLevels int) Ladder {
	// Many retries may share a few delays (RocketMQHTTP has 288 equal ones).
	weight := make(map[time.Duration]int)
	for _, d := range delays {
		weight[d]++
	}
	cost := func(l Ladder) int {
		c := l.hops(time.Hour)
		for d, n := range weight {
			c += 1000 * n * l.hops(d)
		}
		return c
	}
	levels := slices.Clone(all)
	for len(levels) > max(1, maxLevels) {
		var best Ladder
		for i := 1; i < len(levels); i++ {
			if l := slices.Delete(slices.Clone(levels), i, i+1); best == nil || cost(l) < cost(best) {
				best = l
			}
		}
		levels = best
	}
	for better := len(levels) < len(all); better; {
		better = false
		best := levels
		for i := 1; i < len(levels); i++ {
			for _, d := range all {
				if slices.Contains(levels, d) {
					continue
				}
				l := slices.Clone(levels)
				l[i] = d
				slices.Sort(l)
				if cost(l) < cost(best) {
					best, better = l, true
				}
			}
		}
		levels = best
	}
	return levels
}

// Next returns the level for a message that may run after remaining: the largest level that fits. ok is false if none fits, so
// that the message is held. A level that is longer than remaining by at most slack, and at most a tenth of itself, fits
// too: the time between decision and write must not send a message to shorter levels. If an adapter cannot release a
// message before its level is over, the message is late by up to slack.
func (l Ladder) Next(remaining, slack time.Duration) (level time.Duration, ok bool) {
	for _, level := range slices.Backward(l) {
		if level-min(slack, level/10) <= remaining {
			return level, true
		}
	}
	return 0, false
}

// hops returns the length of Path(d), which may be too long to be allocated.
func (l Ladder) hops(d time.Duration) (n int) {
	for _, level := range slices.Backward(l) {
		n += int(d / level)
		d %= level
	}
	return n
}

// Path returns the levels on which a message spends a wait of d, in order. For the rest, which is shorter than the smallest level, it
// is held.
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
