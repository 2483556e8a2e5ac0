//go:build prove

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
)

// system is the suite's view of a broker.
type system interface {
	// consumer returns the configuration of a consumer of a load.
	consumer(load history.Load) consumerConfig
	// write writes a message once, and calls confirmed when the broker confirms it, now or later.
	write(ctx context.Context, load history.Load, b body, value []byte, confirmed func(partition int32, offset int64))
	// flush returns when no more confirms will come. The broker is healthy.
	flush(ctx context.Context) error
	// dead returns all messages in a load's DLQ. The broker is healthy.
	dead(ctx context.Context, load history.Load) ([]history.Line, error)
	// unsettled returns how many messages of a load the group has not settled, wherever they are.
	unsettled(ctx context.Context, load history.Load) (n int64, detail string, err error)
	// lanes returns the faults of the broker.
	lanes() []lane
}

// startTimeout bounds each wait for a broker to start, even while the network between its nodes is broken.
const startTimeout = 8 * time.Minute

// nodeRest is the minimum time between two faults of nodes, because a broker that is always down proves little.
const nodeRest = 3 * time.Second

// singleRest is added to nodeRest if there is one node and one way to it, because each fault then stops everything.
const singleRest = 3 * time.Second

// plan describes a run in advance.
type plan struct {
	history.Run
	rates     []int // messages a second, by load
	consumers int   // of each load
	length    time.Duration
	deadline  time.Duration // for all messages to end after the last fault was healed
	maxWait   time.Duration
}

// chaosRun is a run of the suite.
type chaosRun struct {
	t         *testing.T
	plan      plan
	system    system
	path      string
	log       *history.Log
	processes *processes

	reader *history.Reader
	lines  []history.Line
}

// runPlan runs a plan and checks the result against the promises.
func runPlan(t *testing.T, s system, p plan) {
	t.Helper()
	r := &chaosRun{t: t, plan: p, system: s}
	r.path = historyPath(t, p)
	t.Logf("report: %s: seed %d (REDELIVER_CHAOS_SEED repeats it)", p.Broker, p.Seed)
	var err error
	if r.log, err = history.Open(r.path, "test"); err != nil {
		t.Fatal(err)
	}
	defer r.log.Close()
	r.reader = history.NewReader(r.path)
	r.log.Add(history.Line{Kind: history.Began, Run: &p.Run})
	r.processes = &processes{t: t, dir: filepath.Dir(r.path)}
	t.Cleanup(func() { _ = r.processes.end() }) // it has already ended unless the test failed
	for _, load := range p.Loads {
		cfg := s.consumer(load)
		cfg.History, cfg.Load, cfg.MaxWait = r.path, load, p.maxWait
		r.processes.startAll(cfg, p.consumers)
	}
	r.injectFaults()
	healed := time.Now()
	settled := r.settle()
	took := time.Since(healed)
	if err := r.processes.end(); err != nil {
		t.Error(err)
	}
	r.recordDeadLetters()
	if settled {
		r.log.Add(history.Line{Kind: history.Settled})
	}
	r.checkHistory(took)
}

// injectFaults writes the loads and injects the faults, until the time is over and all is healed.
func (r *chaosRun) injectFaults() {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	// Writes that have begun may be confirmed after the writer has stopped.
	writing, cancelWriting := context.WithTimeout(r.t.Context(), r.plan.length+2*r.plan.deadline)
	defer cancelWriting()
	var acts sync.WaitGroup
	for i, load := range r.plan.Loads {
		acts.Go(func() { r.write(ctx, writing, load, r.plan.rates[i]) })
	}
	r.awaitFirstMessages()
	time.AfterFunc(r.plan.length, cancel)
	for _, l := range append(r.system.lanes(), r.processes.lane()) {
		acts.Go(func() {
			if err := runSteps(ctx, r.log, l, l.draw(r.rng(l.name), r.plan.length)); err != nil {
				r.t.Error(err)
			}
		})
	}
	acts.Wait()
	if err := r.system.flush(writing); err != nil {
		r.t.Errorf("the writer: %v", err)
	}
	r.log.Add(history.Line{Kind: history.Said, What: "all is healed"})
}

// awaitFirstMessages waits until messages of each load are handled, including some after a failure. Until then there are no faults.
func (r *chaosRun) awaitFirstMessages() {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.plan.deadline)
	defer cancel()
	retried := make(map[string]bool)
	for len(retried) < len(r.plan.Loads) {
		for _, l := range r.more() {
			if l.Kind == history.Begin && l.Attempt > 1 {
				retried[l.Load] = true
			}
		}
		if !consumer.Pause(ctx, 50*time.Millisecond) {
			r.t.Errorf("no retry of each load within %s, before any fault: %v", r.plan.deadline, retried)
			return
		}
	}
}

// more reads the new lines of the history and returns them.
func (r *chaosRun) more() []history.Line {
	fresh, err := r.reader.More()
	if err != nil {
		r.t.Error(err)
	}
	r.lines = append(r.lines, fresh...)
	return fresh
}

// rng returns a separate source of random numbers for each purpose, so that none affects another.
func (r *chaosRun) rng(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.plan.Broker + " " + name))
	return rand.New(rand.NewPCG(r.plan.Seed, h.Sum64()))
}

// write writes that many messages a second until ctx ends. It does not repeat a write without an answer.
func (r *chaosRun) write(ctx, writing context.Context, load history.Load, rate int) {
	rng := r.rng("load " + load.Name)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		b := body{
			ID: fmt.Sprintf("%s-%06d", load.Name, i), Rule: history.Never, Key: fmt.Sprintf("k%02d", rng.IntN(40)),
			Pad: strings.Repeat("0123456789abcdef", rng.IntN(60)),
		}
		switch n := rng.IntN(100); {
		case n < 4:
			b.Rule = history.Always
		case n < 16:
			b.Rule = history.Once
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		value, err := json.Marshal(b)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.log.Add(history.Line{Kind: history.Write, ID: b.ID, Load: load.Name, Key: b.Key, Rule: b.Rule, Sum: crc32.ChecksumIEEE(value)})
		r.system.write(writing, load, b, value, func(partition int32, offset int64) {
			r.log.Add(history.Line{Kind: history.Written, ID: b.ID, Load: load.Name, Partition: partition, Offset: offset})
		})
	}
}

// settle waits until every message has ended and nothing is unsettled. After the deadline it prints all goroutines.
func (r *chaosRun) settle() bool {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.plan.deadline)
	defer cancel()
	state := ""
	for ctx.Err() == nil {
		missing := r.missing(ctx)
		var left int64
		state = ""
		for _, load := range r.plan.Loads {
			n, detail, err := r.system.unsettled(ctx, load)
			if err != nil {
				n, detail = 1, err.Error()
			}
			left += n
			state += fmt.Sprintf("; %s: %d unsettled:%s", load.Name, n, detail)
		}
		state = fmt.Sprintf("%d messages have not ended%s", missing, state)
		if missing == 0 && left == 0 {
			return true
		}
		consumer.Pause(ctx, 250*time.Millisecond)
	}
	r.log.Add(history.Line{Kind: history.Said, What: state})
	r.t.Errorf("not everything ended within %s: %s; the consumers' goroutines are in %s", r.plan.deadline, state, filepath.Dir(r.path))
	r.processes.dump()
	return false
}

// missing returns how many confirmed messages have not ended yet.
func (r *chaosRun) missing(ctx context.Context) int {
	r.more()
	open := make(map[string]bool)
	for _, l := range r.lines {
		if l.Kind == history.Written {
			open[l.ID] = true
		}
	}
	for _, l := range r.lines {
		if l.Kind == history.End && l.Outcome == history.OK {
			delete(open, l.ID)
		}
	}
	if len(open) == 0 {
		return 0
	}
	for _, load := range r.plan.Loads {
		deadLetters, err := r.system.dead(ctx, load)
		if err != nil {
			continue // it is asked again later
		}
		for _, l := range deadLetters {
			delete(open, l.ID)
		}
	}
	return len(open)
}

// recordDeadLetters records the messages in the DLQs.
func (r *chaosRun) recordDeadLetters() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, load := range r.plan.Loads {
		deadLetters, err := r.system.dead(ctx, load)
		if err != nil {
			r.t.Error(err)
		}
		for _, l := range deadLetters {
			r.log.Add(l)
		}
	}
}

// checkHistory runs the checker on the history.
func (r *chaosRun) checkHistory(took time.Duration) {
	lines, err := history.NewReader(r.path).More()
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := history.Check(lines)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("report: %s: %s; after the faults the run took another %s", r.plan.Broker, v, took.Round(100*time.Millisecond))
	if len(v.Violations) > 0 {
		r.t.Errorf("%d violations (go run ./integration/cmd/checkhistory %s lists them):%s", len(v.Violations), r.path, few(v.Violations))
	}
	if v.Committed == 0 || v.Dead == 0 || len(v.Late) == 0 {
		r.t.Errorf("the run checks nothing: %d committed, %d dead letters, %d retries", v.Committed, v.Dead, len(v.Late))
	}
}

// historyPath returns the path of the history. The consumers' logs are in the same directory. The directory is kept if
// REDELIVER_CHAOS_HISTORY names it, or if the test has failed.
func historyPath(t *testing.T, p plan) string {
	t.Helper()
	root := os.Getenv("REDELIVER_CHAOS_HISTORY")
	if root != "" {
		if err := os.MkdirAll(root, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(root, fmt.Sprintf("redeliver-chaos-%s-%d-", p.Broker, p.Seed)) //nolint:usetesting // It outlives a failed test.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || root != "" {
			t.Logf("report: %s: the history and the output of the consumers are kept in %s", p.Broker, dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return filepath.Join(dir, "history.jsonl")
}
