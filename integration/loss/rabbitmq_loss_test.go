package loss

import (
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossRabbitMQ kills consumers and the broker, and closes connections, while messages are under way, and checks the
// result. In make prove the newer versions have smaller runs in parallel, and RabbitMQ 4.0 then shows that the suite
// finds losses.
func TestLossRabbitMQ(t *testing.T) {
	t.Parallel()
	type run struct {
		version brokers.RabbitMQVersion
		size    size
	}
	runs := []run{{brokers.RabbitMQ3, full()}}
	if brokers.Proving {
		runs = append(runs, run{brokers.RabbitMQ4, newer(2)}, run{brokers.RabbitMQ43, newer(1)})
	}
	for _, c := range runs {
		t.Run(string(c.version), func(t *testing.T) {
			t.Parallel()
			c.size.closings = c.size.restarts + 1
			p := drawPlan(t, c.size)
			p.suspects = true
			own := brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{Version: c.version})
			sys := newRabbitMQ(t, own, "loss")
			wantNoLoss(t, "loss: RabbitMQ "+string(c.version), sys, p, func(p plan, out outcome) int { return inHand(p, out, sys.rewritten) })
			if c.version == brokers.RabbitMQ4 { // which has less to do
				t.Run("finds losses", func(t *testing.T) { lossesOnRabbitMQ(t, newRabbitMQ(t, own, "early-ack")) })
			}
		})
	}
}

// newer returns the size of a run with that many kills in each state.
func newer(kills int) size {
	if brokers.Soak() {
		return size{messages: 40_000, perState: 13, outside: 8, restarts: 6}
	}
	return size{messages: 1000 * kills, perState: kills, outside: 1, restarts: 1}
}

// inHand returns how many runs may be repeated. Unacked messages come back when their connection ends, at most the
// prefetch:
//
//   - for each run that was not acked by then, that one, and its later attempts, because its retry may have been
//     written already, and that copy runs, too. An ack takes 20 ms and the broker's time to confirm; a busy machine
//     gets more;
//   - one message in a hundred, for those that were under way from one queue to another, to the suspects for instance,
//     and did not run here at all;
//   - all runs of messages that the writer wrote again without a confirm.
func inHand(p plan, out outcome, rewritten int) int {
	const maxWait = 100 * time.Millisecond
	items := make(map[string]*item, len(p.items))
	for _, it := range p.items {
		items[it.id] = it
	}
	lines := slices.SortedStableFunc(slices.Values(out.journal), func(a, b line) int { return a.at.Compare(b.at) })
	ends := make(map[int][]time.Time) // of connections, by process
	last := make(map[int]time.Time)
	for _, l := range lines {
		last[l.process] = l.at
		if l.kind == lostConnection {
			ends[l.process] = append(ends[l.process], l.at)
		}
	}
	for _, target := range out.killedWorkers {
		ends[target] = append(ends[target], last[target])
	}
	type running struct {
		process int
		run     run
	}
	began := make(map[running]time.Time)
	again := make(map[int]map[time.Time][]int) // by process and end of a connection: runs that each may repeat
	count := func(r running, from, to time.Time) {
		for _, end := range ends[r.process] {
			it := items[r.run.id]
			if it == nil || from.After(end.Add(maxWait)) || to.Before(end.Add(-maxWait)) {
				continue
			}
			if again[r.process] == nil {
				again[r.process] = make(map[time.Time][]int)
			}
			again[r.process][end] = append(again[r.process][end], it.attempts()-r.run.attempt+1)
		}
	}
	for _, l := range lines {
		r := running{l.process, run{l.id, l.attempt}}
		switch l.kind {
		case entered:
			began[r] = l.at
		case succeeded, failed:
			count(r, began[r], l.at)
			delete(began, r)
		case joined, lostConnection, ignored, killed, refused, changed: // no runs
		}
	}
	for r, from := range began { // interrupted
		count(r, from, last[r.process])
	}
	n := rewritten*(maxRetries+1) + len(p.items)/100
	for _, byEnd := range again {
		for _, worth := range byEnd {
			slices.Sort(worth)
			for _, w := range worth[max(0, len(worth)-rabbitInHand):] {
				n += w
			}
		}
	}
	return n
}

// lossesOnRabbitMQ is TestLossSuiteFindsLosses on the node of an earlier run. Starting another one costs eight CPU seconds.
func lossesOnRabbitMQ(t *testing.T, sys system) {
	p := planWithEarlyAck(t)
	p.suspects = true
	wantLosses(t, "early ack: RabbitMQ", sys, p)
}
