package check

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// sequence is the scope of an order.
type sequence struct {
	service   int
	topic     string
	log       int // how often the topic had been created again
	partition int32
	key       string
}

// ranks order the orders: if the broker has no order of its own, a service that changes its order in a deploy keeps the weakest.
var ranks = []string{plan.OrderNone, plan.OrderFirstAttempts, plan.OrderThroughRetries, plan.OrderBlocking}

func (c *checker) weakest(service int) string {
	if order := c.world.Bounds.Order; order != "" {
		return order
	}
	s := c.world.Services[service]
	rank := len(ranks) - 1
	for _, v := range s.Versions {
		rank = min(rank, slices.Index(ranks, v.Order))
	}
	return ranks[rank]
}

// checkOrder checks that the first run of each message of a key comes after the earlier ones have got as far as the order
// requires. No fault excuses it: a new owner runs unsettled messages again before later ones.
func (c *checker) checkOrder() {
	all := make(map[sequence][]*message)
	unplaced := make(map[sequence]int) // the failures of a key's messages whose places are not known, in any log
	for k, m := range c.messages {
		order := c.weakest(k.service)
		if order == plan.OrderNone {
			continue
		}
		q := sequence{k.service, m.plan.Topic, c.log(m.original), m.partition, m.plan.Key}
		if order == plan.OrderBlocking {
			q.key = ""
		}
		if m.written == 0 || m.writes > 1 || m.plan.Delay > 0 {
			unplaced[q.ofKey()] += m.failedRuns()
			continue
		}
		all[q] = append(all[q], m)
	}
	for _, q := range slices.SortedFunc(maps.Keys(all), func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.topic, b.topic), cmp.Compare(a.log, b.log), cmp.Compare(a.partition, b.partition), cmp.Compare(a.key, b.key))
	}) {
		line := all[q]
		slices.SortFunc(line, func(a, b *message) int { return cmp.Compare(a.offset, b.offset) })
		failures := unplaced[q.ofKey()] // runs of the messages so far that failed, or that nobody knows the end of
		for i, m := range line {
			if i > 0 {
				c.checkPair(c.weakest(q.service), line[i-1], m)
			}
			vain := 0
			for _, r := range m.runs {
				if r.vain {
					vain++
				}
			}
			if vain > failures {
				c.violatef(history.Again, m.key.id, "%d answers did not count, although earlier messages of its key failed only %d times: %s", vain, failures, c.describe(m))
			}
			failures += m.failedRuns()
		}
	}
}

// ofKey returns the scope of a key in all logs and partitions of its topic.
func (q sequence) ofKey() sequence { return sequence{service: q.service, topic: q.topic, key: q.key} }

// failedRuns counts the runs that failed, or that nobody knows the end of.
func (m *message) failedRuns() (n int) {
	for _, r := range m.runs {
		if r.outcome != history.OK && !r.vain {
			n++
		}
	}
	return n
}

// through returns when a message has got so far that the next one of its key may begin.
func (c *checker) through(order string, m *message) int64 {
	at := int64(math.MaxInt64)
	for _, r := range m.runs {
		switch f, ok := m.failed(r); {
		case !ok && r.end == 0, r.outcome == history.Cut:
		case ok && order == plan.OrderFirstAttempts: // later messages overtake it
			at = min(at, f.at)
		case ok && f.more, !ok && order != plan.OrderFirstAttempts && !r.counts():
		case ok:
			at = min(at, f.at)
		default:
			at = min(at, r.end)
		}
	}
	return at
}

func (c *checker) checkPair(order string, a, b *message) {
	if len(b.runs) == 0 || len(a.dead) > 0 && slices.Contains([]string{"crashed", "expired"}, a.dead[0].Reason) || c.deletedBefore(a, b) || c.wasDeleted(a) != nil || c.inNewLog(a, b) {
		return
	}
	if order == plan.OrderBlocking && slices.ContainsFunc(a.plan.Script, func(s plan.Step) bool {
		return s.Answer == plan.Hang || s.Answer == plan.Postpone || s.Answer == plan.Pause
	}) {
		return // it loses its place
	}
	inBatches := c.world.Services[b.key.service].Way == plan.ConsumeBatch
	if len(b.dead) > 0 && slices.Contains([]string{"crashed", "expired"}, b.dead[0].Reason) && c.replayed(b.key.service, b.runs[0].begin) {
		return // it ended without a run of its own, and a replay has no order
	}
	// A process that died cannot report that a run was in vain.
	i := slices.IndexFunc(b.runs, func(r *run) bool { return !r.vain && (!inBatches || r.end != 0 || order == plan.OrderFirstAttempts) })
	if i < 0 { // it has expired meanwhile
		return
	}
	first := b.runs[i]
	if at := c.through(order, a); first.begin < at {
		by := "it never did"
		if at != math.MaxInt64 {
			by = time.Duration(at-first.begin).String() + " later"
		}
		c.violatef(history.OutOfLine, b.key.id, "it began before %s had got there (%s), which comes before it (%s): %s; %s: %s",
			a.key.id, by, order, c.describe(b), a.key.id, c.describe(a))
	}
}

// checkLateness checks that messages begin soon if nothing is in their way: neighbours of bad messages, and retries that are
// due. It leaves out what a fault, a full service or a limit of its policy may explain.
func (c *checker) checkLateness() {
	for _, m := range c.messages {
		s := c.world.Services[m.key.service]
		for i, r := range m.runs {
			if slices.ContainsFunc(m.runs[:i], func(before *run) bool { return before.attempt == r.attempt }) {
				continue // it could begin when the broker gave the message back
			}
			from := r.due
			if i == 0 {
				from = m.written + int64(m.plan.Delay)
			}
			v := r.version
			bound := int64(soon + v.Timeout)
			if from == 0 || r.begin-from <= bound || (v.Order != plan.OrderFirstAttempts && v.Order != plan.OrderNone) || v.Rate > 0 || v.MinInFlight > 0 || v.Outage || s.Way == plan.ConsumeBatch {
				continue
			}
			if c.touchedByAny(from-2*int64(c.linger()), r.begin) || c.busy(m, from, r.begin) || c.handlerPaused(r.name, from, r.begin) {
				continue
			}
			c.violatef(Late, m.key.id, "attempt %d began %s after it could: %s", r.attempt, time.Duration(r.begin-from), c.describe(m))
		}
	}
	if c.settled && c.healed != 0 {
		last := int64(0)
		for _, m := range c.messages {
			for _, r := range m.runs {
				last = max(last, r.begin)
			}
		}
		if bound := c.restBound(); time.Duration(last-c.healed) > bound {
			c.violatef(Restless, "", "the last attempt began %s after the end of all faults, the bound is %s", time.Duration(last-c.healed).Round(time.Second), bound.Round(time.Second))
		}
	}
}

// restBound returns how long after the end of all faults the last attempt may begin: the chain of waits of one message, the time
// that the handlers of all messages take one after another, and two minutes.
func (c *checker) restBound() (bound time.Duration) {
	for _, s := range c.world.Services {
		var chain, work time.Duration
		slowest := math.Inf(1)
		for _, v := range s.Versions {
			var d time.Duration
			for n := 1; n <= v.MaxRetries; n++ {
				d += v.Wait(n) + v.Timeout
			}
			chain = max(chain, d+v.Timeout+v.BatchTimeout)
			if v.Rate > 0 {
				slowest = min(slowest, v.Rate)
			}
		}
		attempts := 0
		for _, m := range c.world.Messages {
			if !slices.Contains(s.Topics, m.Topic) {
				continue
			}
			for i, step := range m.Script {
				attempts++
				work += step.Takes + step.Wait + step.Until - min(step.Until, m.At)
				for _, v := range s.Versions {
					if step.Answer == plan.Slow || step.Answer == plan.Hang {
						work += 2 * v.Timeout
					}
					if step.Answer != plan.OK && (v.Order == plan.OrderBlocking || v.Order == plan.OrderThroughRetries) {
						work += v.Wait(i+1) * time.Duration(max(1, v.MaxRetries))
					}
					if step.Answer != plan.OK && v.Outage {
						work += 40 * time.Second
					}
				}
			}
		}
		if !math.IsInf(slowest, 1) {
			work += time.Duration(float64(attempts) * 5 / slowest * float64(time.Second))
		}
		bound = max(bound, 2*(chain+work)+rest)
	}
	return bound
}

// touchedByAny reports whether anything but messages happened between two moments, or processes came or went.
func (c *checker) touchedByAny(from, to int64) bool {
	return slices.ContainsFunc(c.moves, func(at int64) bool { return at >= from && at <= to }) ||
		slices.ContainsFunc(c.faults, func(f fault) bool {
			return f.from <= to && (f.to == 0 || f.to+int64(cmp.Or(c.world.Bounds.Linger, noticed)) >= from)
		})
}

// handlerPaused reports whether a process was in a pause that one of its handlers had asked for, at some time between two moments. It
// ends when a probe has run, which may take its time.
func (c *checker) handlerPaused(process string, from, to int64) bool {
	paused := false
	for _, e := range c.events {
		if e.Process != process || e.What != pausedByHandler && e.What != resumed {
			continue
		}
		if paused && e.At >= from {
			return true
		}
		if e.At > to {
			return false
		}
		paused = e.What == pausedByHandler
	}
	return paused
}

// busy reports whether the service may have had no room for a message, or ran another of its key, between two moments.
func (c *checker) busy(m *message, from, to int64) bool {
	inFlight := 0
	for k, other := range c.messages {
		if k.service != m.key.service {
			continue
		}
		for _, r := range other.runs {
			if other != m && r.begin <= to && (r.end == 0 || r.end >= from-int64(time.Second)) {
				inFlight++
				if other.plan.Key == m.plan.Key {
					return true
				}
			}
		}
	}
	for _, v := range c.world.Services[m.key.service].Versions {
		if inFlight >= min(v.MaxInFlight, v.MaxRetriesInFlight) {
			return true
		}
	}
	return false
}
