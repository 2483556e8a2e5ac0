package loss

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossKafka kills consumers and the broker while messages are under way, and checks the result.
func TestLossKafka(t *testing.T) {
	t.Parallel()
	p := drawPlan(t, full())
	p.variant = []string{eager, cooperative}[rand.New(rand.NewPCG(p.seed, 5)).IntN(2)]
	if v := os.Getenv("REDELIVER_LOSS_VARIANT"); v != "" {
		p.variant = v
	}
	b := brokers.OwnKafka(t, brokers.KafkaOptions{})
	// There are more partitions than consumers, so that every consumer has some of every topic with any strategy.
	sys := newKafka(t, b.Addrs(), b, "loss", 10)
	wantNoLoss(t, "loss: "+p.variant, sys, p, explained)
}

// wantNoLoss runs a plan and checks the result against the promises. bound returns the maximum number of repeated runs.
func wantNoLoss(t *testing.T, name string, sys system, p plan, bound func(plan, outcome) int) {
	t.Helper()
	t.Logf("report: %s: seed %d (REDELIVER_LOSS_SEED repeats it)", name, p.seed)
	out := runChaos(t, sys, p)
	p.items = out.items // there may be more
	v := check(out.evidence)
	most := bound(p, out)
	report(t, name, p, out, v, most)

	if !out.settled {
		t.Errorf("the group did not settle everything within %s: %s", p.deadline, out.detail)
	}
	if len(v.lost) > 0 {
		t.Errorf("%d lost:%s", len(v.lost), few(v.lost))
	}
	if len(v.early) > 0 {
		t.Errorf("%d early:%s", len(v.early), few(v.early))
	}
	if len(v.wrong) > 0 {
		t.Errorf("%d wrong:%s", len(v.wrong), few(v.wrong))
	}
	wantKills(t, p, out, v)
	if v.rerun > most || v.deadAgain > most {
		t.Errorf("%d runs and %d dead letters too many, at most %d are explained by what was killed", v.rerun, v.deadAgain, most)
	}
}

// size is the amount of work in a run.
type size struct{ messages, perState, outside, restarts, closings int }

// full returns the size of a run. Kills find losses: each state has six of them in make prove, and one in make test.
// The suites that expect a loss find it with 2,000 messages.
func full() size {
	switch {
	case brokers.Soak():
		return size{messages: 400_000, perState: 130, outside: 80, restarts: 60}
	case brokers.Proving:
		return size{messages: 6000, perState: 6, outside: 4, restarts: 3}
	default:
		return size{messages: 1000, perState: 1, outside: 1, restarts: 1}
	}
}

// drawPlan draws a plan from a seed.
func drawPlan(t *testing.T, s size) plan {
	t.Helper()
	p := plan{seed: seedOf(t), consumers: 5, steps: steps, deadline: toSettle}
	rng := rand.New(rand.NewPCG(p.seed, 1))
	if brokers.Soak() {
		p.deadline = 90 * time.Minute
	}
	p.items = makeItems(rng, s.messages, 100, 10)
	p.early = s.messages / 10
	p.orders = drawOrders(rng, s.perState, s.outside)
	p.restarts = append(drawRestarts(rng, s.restarts, len(p.orders), false), drawRestarts(rng, s.closings, len(p.orders), true)...)
	slices.SortStableFunc(p.restarts, func(a, b restart) int { return a.kills - b.kills })
	return p
}

// drawRestarts spreads n restarts over that many kills.
func drawRestarts(rng *rand.Rand, n, kills int, closing bool) []restart {
	list := make([]restart, n)
	for i := range list {
		part := kills / n
		list[i] = restart{
			kills:   i*part + rng.IntN(max(1, part-2)) + 1,
			wait:    time.Duration(rng.IntN(1500)) * time.Millisecond,
			down:    time.Duration(rng.IntN(1500)) * time.Millisecond,
			closing: closing,
		}
	}
	return list
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("REDELIVER_LOSS_SEED")
	if text == "" {
		return rand.Uint64() % 1_000_000
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("REDELIVER_LOSS_SEED: %v", err)
	}
	return seed
}

// drawOrders draws that many kills of each state (half as many SIGTERMs), and some from outside, in random order.
func drawOrders(rng *rand.Rand, perState, outside int) []order {
	var orders []order
	for i := range perState {
		for _, st := range states {
			if st == ending && i%2 == 1 { // each takes as long as a drain timeout
				continue
			}
			o := order{state: st, nth: 1 + rng.IntN(20)}
			if st != running && st != ending {
				o.nth = 1 + rng.IntN(5)
			}
			if st == publishing && i%2 == 0 { // long enough for offsets to be committed meanwhile
				o.delay = time.Duration(1+rng.IntN(600)) * time.Millisecond
			}
			orders = append(orders, o)
		}
	}
	for range outside {
		orders = append(orders, order{state: anywhere})
	}
	rng.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	return orders
}

// wantKills compares the run with its plan, because a suite that did not kill proves nothing.
func wantKills(t *testing.T, p plan, out outcome, v *checkResult) {
	t.Helper()
	if out.missed > 0 {
		t.Errorf("%d of %d kills were missed: their states did not come within %s", out.missed, len(p.orders), p.deadline)
	}
	for _, st := range states {
		if out.kills[st] == 0 {
			t.Errorf("no consumer was killed (or asked to end) while %s", st)
		}
		if out.kills[st] != v.kills[st] {
			t.Errorf("%d consumers were killed (or asked to end) while %s, their journals say %d", out.kills[st], st, v.kills[st])
		}
	}
	if out.restarts+out.closings != len(p.restarts) {
		t.Errorf("%d of %d restarts of the broker and closings of its connections", out.restarts+out.closings, len(p.restarts))
	}
	if out.fewest < p.consumers-parallelKills {
		t.Errorf("there were only %d consumers at a time, want %d", out.fewest, p.consumers-parallelKills)
	}
	if len(v.notRepeated) > 0 {
		t.Errorf("%d kills were not at their place: their message did not run again:%s", len(v.notRepeated), few(v.notRepeated))
	}
}

// explained returns how many runs may be repeated, estimated generously from the actual runs:
//
//   - The runs of a killed consumer since its lowest unsettled message started (the slowest handler's time), plus 250 ms,
//     which is a little more than a commit's interval.
//   - The runs of all consumers from that time before a broker died until it was back. Meanwhile they handle messages in
//     memory, which cannot be committed.
//   - A quarter of these, because a copy passes the levels like its original.
//   - One message in twenty for the rebalances. They repeat only messages that a drain timeout interrupts.
//
// A cooperative group gets an additional session: sarama delays commits until all members have joined again, or the
// dead ones are removed, while the handlers continue.
func explained(p plan, out outcome) int {
	window := 250*time.Millisecond + slowest
	if p.variant == cooperative {
		window += kafkaSession
	}
	last := make(map[int]time.Time)
	for _, l := range out.journal {
		if slices.Contains(out.killedWorkers, l.process) && l.at.After(last[l.process]) {
			last[l.process] = l.at
		}
	}
	n := 0
	for _, l := range out.journal {
		if l.kind != entered {
			continue
		}
		died, ok := last[l.process]
		if ok && l.at.After(died.Add(-window)) ||
			slices.ContainsFunc(out.outages, func(o outage) bool { return l.at.After(o.from.Add(-window)) && l.at.Before(o.to) }) {
			n++
		}
	}
	return n + n/4 + len(p.items)/20
}

func report(t *testing.T, name string, p plan, out outcome, v *checkResult, most int) {
	t.Helper()
	t.Logf("report: %s: %d messages, %d lost, %d early; killed %d consumers (%s; ending is SIGTERM), %d broker restarts, all connections closed %d times, %d to %d consumers alive",
		name, len(p.items), len(v.lost), len(v.early), sum(out.kills), counts(out.kills), out.restarts, out.closings, out.fewest, p.consumers)
	t.Logf("report: %s: %d runs, %d of them again (%d of these although their consumer lived) and %d dead letters again, of %d messages (at most %d are explained), %d first runs as suspects; retries late p50 %s p99 %s max %s; %.1f s",
		name, v.runs, v.rerun, v.alive, v.deadAgain, v.duplicated, most, v.suspects,
		quantile(v.late, 0.5), quantile(v.late, 0.99), quantile(v.late, 1), out.took.Seconds())
}

func sum(kills map[state]int) int {
	n := 0
	for _, k := range kills {
		n += k
	}
	return n
}

func planWithEarlyAck(t *testing.T) plan {
	t.Helper()
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	p := plan{
		seed: seed, consumers: 3, earlyAck: true, steps: steps, deadline: toSettle,
		items: makeItems(rng, 2000, 150, 50), early: 200,
	}
	for range 4 {
		p.orders = append(p.orders, order{state: publishing, nth: 1 + rng.IntN(5), delay: 600 * time.Millisecond})
	}
	return p
}

// wantLosses runs a plan without "confirm before ack" and requires losses.
func wantLosses(t *testing.T, name string, sys system, p plan) {
	t.Helper()
	out := runChaos(t, sys, p)
	v := check(out.evidence)
	t.Logf("report: %s: seed %d, without confirm before ack %d of %d messages are lost by %d kills; %.1f s",
		name, p.seed, len(v.lost), len(out.items), sum(out.kills), out.took.Seconds())
	if len(v.lost) == 0 {
		t.Fatalf("nothing is lost although failed messages were acked before they were written (%s)", counts(out.kills))
	}
	if !out.settled {
		t.Errorf("the group did not settle everything: %s", out.detail)
	}
	others := slices.DeleteFunc(v.lost, func(description string) bool { return strings.Contains(description, " F") })
	if len(others) > 0 {
		t.Errorf("%d lost messages had never failed, which is a different fault:%s", len(others), few(others))
	}
}
