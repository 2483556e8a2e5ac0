package loss

import (
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossSQS kills consumers while 6,000 messages are under way and SQS is unreliable: some requests fail in one of
// its ways, at times all of them do, and connections are closed. It checks the result.
func TestLossSQS(t *testing.T) {
	t.Parallel()
	size := full()
	size.closings = size.restarts
	p := drawPlan(t, size)
	p.suspects = true
	sys := newSQS(t, brokers.RequireSQS(t), "loss", p.seed)
	sys.badDays()
	wantNoLoss(t, "loss: SQS", sys, p, func(p plan, out outcome) int { return undeleted(p, out, sys.doubts()) })
	t.Logf("report: loss: SQS: %d answers left doubt of what was done; requests: %v", sys.doubts(), sys.proxy.Counts())
}

// undeleted returns how many runs may be repeated:
//
//   - for each run of a killed consumer that was not over 300 ms before its end (a deletion leaves within 20 ms, and
//     one that fails is tried again after 100 ms), that one, and its later attempts, because its retry may have been
//     written already, and that copy runs, too. If all requests failed within that time, it counts from the beginning
//     of that outage;
//   - for each ambiguous answer, ten entries with all their attempts;
//   - one message in fifty, for those that came back to others because the request that hides them failed.
func undeleted(p plan, out outcome, doubts int) int {
	const maxWait = 300 * time.Millisecond
	items := make(map[string]*item, len(p.items))
	for _, it := range p.items {
		items[it.id] = it
	}
	type running struct {
		process int
		run     run
	}
	last := make(map[int]time.Time) // of a process
	over := make(map[running]time.Time)
	for _, l := range out.journal {
		if l.at.After(last[l.process]) {
			last[l.process] = l.at
		}
		if l.kind == entered || l.kind == succeeded || l.kind == failed {
			if r := (running{l.process, run{l.id, l.attempt}}); l.at.After(over[r]) {
				over[r] = l.at // an interrupted run has only a beginning
			}
		}
	}
	n := doubts*10*(maxRetries+1) + len(p.items)/50
	for r, at := range over {
		it := items[r.run.id]
		if it == nil || !slices.Contains(out.victims, r.process) {
			continue
		}
		from := last[r.process].Add(-maxWait)
		for _, o := range out.outages {
			if o.to.After(from) && o.from.Before(from) {
				from = o.from.Add(-maxWait)
			}
		}
		if at.After(from) {
			n += it.attempts() - r.run.attempt + 1
		}
	}
	return n
}
