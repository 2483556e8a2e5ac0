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
//   - The runs of a killed consumer that ended less than 300 ms before the kill, or not at all. A deletion leaves within
//     20 ms, and a failed one is tried again after 100 ms. If all requests failed within that time, the 300 ms count
//     from the beginning of that outage.
//   - The later attempts of these messages. A retry may have been written already, and that copy runs, too.
//   - For each ambiguous answer, ten entries with all their attempts.
//   - One message in fifty. A message comes back to others if the request that hides it fails.
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
	lastSeen := make(map[running]time.Time)
	for _, l := range out.journal {
		if l.at.After(last[l.process]) {
			last[l.process] = l.at
		}
		if l.kind == entered || l.kind == succeeded || l.kind == failed {
			if r := (running{l.process, run{l.id, l.attempt}}); l.at.After(lastSeen[r]) {
				lastSeen[r] = l.at // an interrupted run has only a beginning
			}
		}
	}
	n := doubts*10*(maxRetries+1) + len(p.items)/50
	for r, at := range lastSeen {
		it := items[r.run.id]
		if it == nil || !slices.Contains(out.killedWorkers, r.process) {
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
