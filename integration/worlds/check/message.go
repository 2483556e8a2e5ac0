package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// failure is a failed attempt that counts.
type failure struct {
	*run
	at   int64
	wait time.Duration // the minimum until the next attempt
	more bool          // the version's policy has a retry left
}

// failed returns the failure of a run, if it has one.
func (m *message) failed(r *run) (f failure, ok bool) {
	f = failure{run: r, at: r.end, wait: r.version.Wait(r.attempt), more: r.attempt <= r.version.MaxRetries}
	switch r.outcome {
	case string(plan.Fail), string(plan.Panic), "down":
	case "timeout":
		f.at -= int64(r.slack)
	case string(plan.Hang):
		f.at = r.begin + int64(r.version.Timeout-r.slack)
	case "": // it ran when its process died
		f.at = r.begin + int64(r.version.Timeout-r.slack)
		return f, f.at < r.killed
	case string(plan.RetryAfter):
		f.wait = m.plan.Step(r.attempt).Wait
		if r.version.Order == plan.OrderBlocking { // clamped
			f.wait = min(max(f.wait, 10*time.Millisecond), 30*time.Second)
		}
	default:
		return f, false
	}
	return f, true
}

// grace is how long after its timeout a handler is waited for.
const grace = time.Second

// counts reports whether a run ended with an answer that settles it or plans the next attempt.
func (r *run) counts() bool {
	for _, end := range []int64{r.stopped, r.returned} {
		if r.outcome == string(plan.Hang) && end != 0 && end < r.begin+int64(r.version.Timeout+grace) {
			return false // its process stopped first, or had no more time to drain
		}
	}
	return r.end != 0 && r.outcome != history.Cut && r.outcome != string(plan.Postpone) && r.outcome != string(plan.Pause)
}

// commitInterval returns how long a settled message may run again: with Wrap, sarama's interval of 1 s is added.
func (c *checker) commitInterval(m *message) time.Duration {
	if c.world.Services[m.key.service].Way == plan.Wrap {
		return c.settle() + time.Second
	}
	return c.settle()
}

// settle returns how long a settled message may run again after a kill.
func (c *checker) settle() time.Duration { return cmp.Or(c.world.Bounds.Settle, commitInterval) }

// cutBetween reports whether a run was cut between two moments.
func (m *message) cutBetween(from, to int64) bool {
	return slices.ContainsFunc(m.runs, func(r *run) bool { return r.outcome == history.Cut && r.begin >= from && r.end <= to })
}

// settled returns when a run's message moved on: for a handler that hangs, before it returns.
func (m *message) settled(r *run) int64 {
	if f, ok := m.failed(r); ok {
		return f.at
	}
	return r.end
}

// maxRuns is more runs of a message than any bound allows. So many are not examined one by one.
const maxRuns = 500

func (c *checker) checkMessage(m *message) {
	counted := 0
	for _, r := range m.runs {
		if r.counts() {
			counted++
		}
	}
	if counted > maxRuns {
		if c.resets(m.key.service, 0) > 0 && counted <= c.copies(m)+maxRuns {
			return // a group without offsets runs each copy that hopped
		}
		c.violatef(history.Again, m.key.id, "it ran %d times", counted)
		return
	}
	began := make(map[int][]*run)
	failures := make(map[int][]failure)
	var committed []*run
	for _, r := range m.runs {
		c.checkAttempt(m, r, failures)
		began[r.attempt] = append(began[r.attempt], r)
		if r.outcome == history.OK {
			committed = append(committed, r)
		}
		if f, ok := m.failed(r); ok {
			failures[r.attempt] = append(failures[r.attempt], f)
		}
	}
	again := 0
	for n, runs := range began {
		again += c.checkAgain(m, n, runs, failures[n-1])
	}
	c.result.Again += again
	c.checkEnds(m, committed, failures, again)
}

// checkAttempt checks that an attempt may begin when it does.
func (c *checker) checkAttempt(m *message, r *run, failures map[int][]failure) {
	_, latest := c.expiry(m, r.version)
	begin := r.begin
	if c.world.Services[m.key.service].Way == plan.ConsumeBatch { // it is checked when its batch begins, and waits there for others of its key
		begin -= int64(c.batchTime(m, r))
	}
	if begin > latest && !c.replayed(m.key.service, r.begin) {
		c.violatef(Stale, m.key.id, "attempt %d began %s after it had expired: %s", r.attempt, time.Duration(r.begin-latest), c.describe(m))
	}
	if due := m.first + int64(m.plan.Delay); m.plan.Delay > 0 && r.begin < due {
		c.violatef(history.Early, m.key.id, "attempt %d began %s before it was to be published: %s", r.attempt, time.Duration(due-r.begin), c.describe(m))
	}
	if r.attempt == 1 {
		return
	}
	before := failures[r.attempt-1]
	if len(before) == 0 && c.timedOutInBatch(m, r.attempt-1) {
		return
	}
	if len(before) == 0 {
		c.violatef(history.Skipped, m.key.id, "attempt %d, and attempt %d has not failed: %s", r.attempt, r.attempt-1, c.describe(m))
		return
	}
	due, more := int64(math.MaxInt64), false
	for _, f := range before {
		if f.more {
			more = true
			due = min(due, f.at+int64(f.wait))
		}
	}
	switch {
	case !more:
		c.violatef(history.TooMany, m.key.id, "attempt %d, and no policy has a retry left: %s", r.attempt, c.describe(m))
	case r.begin < due:
		c.violatef(history.Early, m.key.id, "attempt %d began %s before its wait was over: %s", r.attempt, time.Duration(due-r.begin), c.describe(m))
	}
}

// maxTimeout is by how much an extended attempt may be longer than its timeout, see Policy.MaxTimeout.
const maxTimeout = 4

// batchTime returns how long before a run its batch may have begun: the time of a batch counts for all its messages, and a handler
// that extends it for one of them extends it for all.
func (c *checker) batchTime(m *message, r *run) time.Duration {
	for k, other := range c.messages {
		if k.service != m.key.service || other == m {
			continue
		}
		for _, o := range other.runs {
			if by := other.plan.Step(o.attempt).Extend; by > 0 && o.name == r.name && o.begin <= r.begin && r.begin <= o.begin+int64(by) {
				return maxTimeout * r.version.Timeout
			}
		}
	}
	return r.version.Timeout
}

// timedOutInBatch reports whether an attempt failed before the handler of a batch came to the message: others of its key had used up
// the time.
func (c *checker) timedOutInBatch(m *message, attempt int) bool {
	return c.world.Services[m.key.service].Way == plan.ConsumeBatch && slices.ContainsFunc(c.events, func(e history.Line) bool {
		return e.What == "RetryScheduled" && e.Name == m.name && e.Attempt == attempt && c.groups[e.Load] == m.key.service
	})
}

// checkAgain checks that an attempt ran not more often than its copies, its unsettled runs and the faults explain. It
// returns how many runs only faults explain.
func (c *checker) checkAgain(m *message, attempt int, runs []*run, before []failure) int {
	explained := max(1, m.writes) // copies
	if m.plan.Delay > 0 && attempt == 1 {
		explained += len(c.faults) // a copy of it may be published for each
	}
	if attempt > 1 {
		explained = 0
		if len(before) == 0 && c.timedOutInBatch(m, attempt-1) {
			explained++
		}
		for _, f := range before {
			explained++
			if c.touched(m.key.service, f.name, f.at, f.at+int64(c.settle())) {
				explained++ // its copy may have been written twice
			}
		}
	}
	explained += c.hops(m, attempt-1)
	explained += c.tries(m, attempt-1)
	touched := c.copiesReset(m, attempt-1)
	for i, r := range runs {
		touched += c.resets(m.key.service, r.begin)
		switch {
		case !r.counts(), r.shared, c.uncounted(m, r):
			explained++
			if r.end != 0 && c.touched(m.key.service, r.name, r.end, r.end+int64(c.commitInterval(m))) {
				touched++ // what it postponed may have been written twice
			}
		case c.touched(m.key.service, r.name, m.settled(r), r.end+int64(c.commitInterval(m))), c.cutByDrain(m, r):
			touched++
		case attempt <= r.version.MaxRetries && (r.version.Order == plan.OrderBlocking || c.world.Bounds.Order == plan.OrderThroughRetries) &&
			(c.countsInMemory(r.name) || slices.ContainsFunc(runs[i+1:], func(other *run) bool { return c.countsInMemory(other.name) })):
			explained++ // in another process they begin again
		case attempt <= r.version.Immediate && i < len(runs)-1 && (runs[i+1].name != r.name || c.touched(m.key.service, r.name, r.end, runs[i+1].begin) || m.cutBetween(r.end, runs[i+1].begin) || c.joinedAgain(m, r, runs[i+1].begin)):
			explained++ // so it is with retries that run immediately
		}
	}
	switch extra := len(runs) - explained; {
	case extra <= 0:
		return 0
	case extra <= touched:
		return extra
	default:
		c.violatef(history.Again, m.key.id, "attempt %d ran %d times, %d of them explained by copies and unsettled runs, %d by faults: %s",
			attempt, len(runs), explained, touched, c.describe(m))
		return extra
	}
}

// cutByDrain reports whether the process of a run had no more time to drain while it settled the message.
func (c *checker) cutByDrain(m *message, r *run) bool {
	return r.stopping != 0 && r.stopped >= r.stopping+int64(c.world.Services[r.service].Drain) && r.stopped < r.end+int64(c.commitInterval(m))
}

// copies returns how many copies of a message hopped.
func (c *checker) copies(m *message) (n int) {
	for _, e := range c.events {
		if e.What == "Hopped" && c.concerns(e, m) {
			n++
		}
	}
	return n
}

// joinedAgain reports whether the process of a failed run got the partitions of the topic again before a moment. It had returned the
// messages that did not run.
func (c *checker) joinedAgain(m *message, r *run, before int64) bool {
	_, failed := m.failed(r)
	return failed && slices.ContainsFunc(c.events, func(e history.Line) bool {
		return e.What == "assigned" && e.Process == r.name && e.Target == m.plan.Topic && e.At >= r.end && e.At <= before
	})
}

// countsInMemory reports whether a process has reported that commits or notes do not have the attempts of messages.
func (c *checker) countsInMemory(process string) bool {
	return slices.ContainsFunc(c.events, func(e history.Line) bool { return e.Process == process && e.What == inMemory })
}

// tries counts the writes of a message that failed after an attempt, and were repeated: the broker may have them all.
func (c *checker) tries(m *message, failed int) (n int) {
	for _, e := range c.events {
		if e.What == "PublishFailed" && e.Name == m.name && e.Attempt == failed {
			n++
		}
	}
	return n
}

// hops counts the moves between levels that a fault touched: the message may be on both levels.
func (c *checker) hops(m *message, failed int) (n int) {
	for _, e := range c.events {
		if e.What == "Hopped" && e.Name == m.name && e.Attempt == failed && c.touched(m.key.service, e.Process, e.At, e.At+int64(c.settle())) {
			n++
		}
	}
	return n
}

// uncounted reports whether a run's failure did not count, because its process had found an outage.
func (c *checker) uncounted(m *message, r *run) bool {
	if !r.version.Outage || r.outcome == history.OK {
		return false
	}
	return slices.ContainsFunc(c.events, func(e history.Line) bool {
		return e.What == "MessagePostponed" && e.Process == r.name && e.At >= m.settled(r) && e.At <= r.end+int64(time.Minute)
	})
}

func (c *checker) checkEnds(m *message, committed []*run, failures map[int][]failure, again int) {
	switch {
	case len(committed) > 0 && len(m.dead) > 0 && again == 0 && m.writes == 1 && !c.uncertain(m) && c.resets(m.key.service, m.first) == 0:
		c.violatef(history.TwoEnds, m.key.id, "%s", c.describe(m))
	case len(committed)+len(m.dead) == 0 && m.written != 0:
		c.checkLost(m, "it has no end")
	}
	for _, d := range m.dead {
		c.result.Dead++
		if !c.rightReason(m, d, failures) {
			c.violatef(history.WrongEnd, m.key.id, "%s after %d attempts: %s", d.Reason, d.Attempt, c.describe(m))
		}
	}
	if n := len(m.dead); n > 1 {
		last := 0
		for _, r := range m.runs {
			if f, ok := m.failed(r); (ok && !f.more) || r.outcome == string(plan.Permanent) || r.outcome == string(plan.Reject) {
				last++
				if c.touched(m.key.service, f.name, f.end, f.end+int64(c.settle())) {
					last++
				}
			}
		}
		last += c.tries(m, m.dead[0].Attempt)
		for _, d := range m.dead {
			last += c.copiesReset(m, d.Attempt)
		}
		uncounted := func(d history.Line) bool { return d.Reason == "crashed" || d.Reason == "expired" } // no run explains these
		if n > last && !slices.ContainsFunc(m.dead, uncounted) {
			c.violatef(history.Again, m.key.id, "it is %d times in the DLQ: %s", n, c.describe(m))
		}
	}
}

// uncertain reports whether an attempt of the message was cut, so that two copies of it may have run.
func (c *checker) uncertain(m *message) bool {
	return slices.ContainsFunc(m.runs, func(r *run) bool {
		return r.end == 0 || c.touched(m.key.service, r.name, r.begin, r.end+int64(c.settle()))
	})
}

// rightReason reports whether a run explains a dead letter.
func (c *checker) rightReason(m *message, d history.Line, failures map[int][]failure) bool {
	last := func(outcomes ...string) bool {
		return slices.ContainsFunc(failures[d.Attempt], func(f failure) bool { return !f.more && slices.Contains(outcomes, f.outcome) })
	}
	answered := func(outcome plan.Answer) bool {
		return slices.ContainsFunc(m.runs, func(r *run) bool { return r.attempt == d.Attempt && r.outcome == string(outcome) })
	}
	switch d.Reason {
	case "exhausted":
		return last(string(plan.Fail), string(plan.RetryAfter), "down")
	case "panic":
		return last(string(plan.Panic))
	case "timeout":
		return last("timeout", string(plan.Hang), "")
	case "permanent":
		return answered(plan.Permanent)
	case "rejected":
		return answered(plan.Reject)
	case "expired":
		return slices.ContainsFunc(c.world.Services[m.key.service].Versions, func(v plan.Version) bool {
			earliest, _ := c.expiry(m, v)
			return d.At >= earliest || m.waitsBeyond(earliest, failures[d.Attempt])
		})
	case "unschedulable":
		return m.plan.Delay > 0 // it could not be published when it was due
	case "crashed":
		died := 0
		for _, r := range m.runs {
			if r.end == 0 && r.killed != 0 {
				died++
			}
		}
		return died >= maxCrashes
	default:
		return false
	}
}

// expiry returns when a message expires for a version, as the earliest and the latest time: its own time is between the begin of
// its write and the answer.
func (c *checker) expiry(m *message, v plan.Version) (earliest, latest int64) {
	earliest, latest = math.MaxInt64, math.MaxInt64
	if v.MaxAge > 0 {
		earliest, latest = m.last+int64(v.MaxAge+m.plan.Delay), m.written+int64(v.MaxAge)
	}
	if m.plan.Delay > 0 { // it begins to age when it is published, which may be late
		latest = math.MaxInt64
	}
	if m.plan.Expires > 0 {
		at := c.start + int64(m.plan.Expires)
		earliest, latest = min(earliest, at), min(latest, at)
	}
	if m.written == 0 {
		latest = math.MaxInt64
	}
	return earliest, latest
}

// waitsBeyond reports whether the next attempt after a failure, or after another answer that makes a message wait, may be due after
// a time.
func (m *message) waitsBeyond(at int64, failures []failure) bool {
	return slices.ContainsFunc(failures, func(f failure) bool { return f.at+int64(f.wait) >= at }) ||
		slices.ContainsFunc(m.runs, func(r *run) bool {
			return !r.counts() && r.end+int64(max(r.version.Longest(), m.plan.Step(r.attempt).Wait)) >= at
		})
}
