package loss

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/consumer"
)

// Bounds for a run to settle all messages, and for a process to end. Other programs have used three quarters of the
// machine's cores for minutes.
const (
	toSettle = 12 * time.Minute
	toEnd    = time.Minute
)

// system is the suite's view of a broker, through a client that is independent of redeliver.
type system interface {
	// consumer returns the broker's part of the configuration of a consumer process.
	consumer() consumerConfig
	// write writes items and returns when the broker has confirmed all. It survives a restart of the broker.
	write(ctx context.Context, items []*item) error
	// dead returns all messages in the DLQ.
	dead(ctx context.Context) ([]deadLetter, error)
	// unsettled returns how many messages the group has not settled, wherever they are.
	unsettled(ctx context.Context) (n int64, detail string, err error)
	// restart kills the broker, starts it again after down, and returns when it answers.
	restart(ctx context.Context, down time.Duration) error
}

// disconnecter is a system whose broker can close the connections of all its clients while it runs.
type disconnecter interface {
	disconnect(ctx context.Context) error
}

// plan describes a run in advance. All of it comes from the seed.
type plan struct {
	seed      uint64
	variant   string
	items     []*item
	early     int     // number of items written before the consumers start
	orders    []order // the kills, in order
	restarts  []restart
	consumers int
	// suspects means that the broker's adapter sets aside messages that may have killed their process. The first
	// attempt of such a message has the time at which it came back as its due time.
	suspects bool
	earlyAck bool
	quick    bool // handlers answer at once
	load     load
	steps    []time.Duration
	deadline time.Duration
}

// restart is a restart of the broker after that many kills.
type restart struct {
	kills   int
	wait    time.Duration // after that
	down    time.Duration
	closing bool // the broker keeps running and closes all connections, see disconnecter
}

// chaos is a run.
type chaos struct {
	t    *testing.T
	plan plan
	sys  system
	dir  string
	rng  *rand.Rand // of the killers, guarded by mu
	// abort ends a run that can prove nothing any more.
	abort        context.CancelCauseFunc
	endRequested atomic.Bool // the consumers have been asked to end
	began        time.Time

	readers     sync.WaitGroup
	stopReading context.CancelFunc

	mu            sync.Mutex
	workers       map[*worker]struct{} // running
	started       int
	fewest        int // minimum number of running consumers, from the first kill to the last
	tails         []*tail
	lines         []line
	done          map[string]bool // committed
	joined        map[int]bool
	ending        map[int]bool // consumers that announced their death
	canceled      map[int]int  // number of orders that they know to be canceled
	kills         map[state]int
	killedWorkers []int // the processes that were killed
	missed        int   // orders whose state did not occur
	restarts      int
	closings      int
	outages       []outage
	written       int
}

// outage is a time without a broker.
type outage struct{ from, to time.Time }

// outcome is the result of a run.
type outcome struct {
	evidence
	kills         map[state]int
	killedWorkers []int
	restarts      int
	closings      int
	outages       []outage
	fewest        int
	missed        int
	took          time.Duration
	settled       bool // the group has settled everything
	detail        string
}

// parallelKills bounds how many consumers may be dead or marked for death at once.
const parallelKills = 2

// runChaos runs a plan to its end.
func runChaos(t *testing.T, sys system, p plan) outcome {
	t.Helper()
	c, ctx := begin(t, sys, p)
	for range p.consumers {
		c.start("")
	}
	var tasks sync.WaitGroup
	orders := make(chan order)
	tasks.Go(func() { c.write(ctx) })
	tasks.Go(func() { c.restart(ctx) })
	for range parallelKills {
		tasks.Go(func() {
			for o := range orders {
				c.kill(ctx, o)
			}
		})
	}
	for _, o := range p.orders {
		orders <- o // kill returns when the run is over
	}
	close(orders)
	tasks.Wait()
	return c.end(ctx)
}

// begin prepares a run and writes the messages that come before the consumers.
func begin(t *testing.T, sys system, p plan) (*chaos, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), p.deadline, fmt.Errorf("the run's deadline of %s is over", p.deadline))
	t.Cleanup(cancel)
	ctx, abort := context.WithCancelCause(ctx)
	reading, stopReading := context.WithCancel(context.Background())
	c := &chaos{
		t: t, plan: p, sys: sys, dir: journals(t), rng: rand.New(rand.NewPCG(p.seed, 2)), began: time.Now(),
		workers: make(map[*worker]struct{}), fewest: p.consumers, done: make(map[string]bool),
		joined: make(map[int]bool), ending: make(map[int]bool), canceled: make(map[int]int), kills: make(map[state]int), abort: abort, stopReading: stopReading,
	}
	t.Cleanup(func() {
		abort(nil)
		c.endWorkers()
		stopReading()
		c.readers.Wait()
	})
	c.readers.Go(func() { c.follow(reading) })
	if err := sys.write(ctx, p.items[:p.early]); err != nil {
		t.Fatal(err)
	}
	c.written = p.early
	return c, ctx
}

// end waits until all is settled, ends the consumers and collects the results.
func (c *chaos) end(ctx context.Context) outcome {
	out := outcome{}
	out.settled, out.detail = c.settle(ctx)
	out.took = time.Since(c.began)
	if !c.endWorkers() {
		c.t.Error("a consumer did not end in order")
	}
	c.stopReading()
	c.readers.Wait()
	c.refresh()
	// The end of every scenario: the consumers have ended, and nothing more comes to the DLQ.
	last, cancel := context.WithTimeout(context.Background(), 2*toEnd)
	defer cancel()
	dead, err := c.sys.dead(last)
	if err != nil {
		c.t.Error(err)
	}
	out.evidence = evidence{items: c.plan.items, journal: c.lines, dead: dead, suspects: c.plan.suspects}
	out.kills, out.killedWorkers, out.missed = c.kills, c.killedWorkers, c.missed
	out.restarts, out.closings, out.outages, out.fewest = c.restarts, c.closings, c.outages, c.fewest
	return out
}

// journals creates a directory that is kept if the test has failed.
func journals(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redeliver-loss-") //nolint:usetesting // It outlives a failed test.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("REDELIVER_LOSS_KEEP") != "" {
			t.Logf("report: the consumers' journals and what they said are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// start starts a consumer. It is a static member if instance is not empty.
func (c *chaos) start(instance string) *worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	cfg := c.sys.consumer()
	cfg.Work, cfg.EarlyAck, cfg.Variant, cfg.Steps = !c.plan.quick, c.plan.earlyAck, c.plan.variant, c.plan.steps
	cfg.Instance, cfg.Load = instance, c.plan.load
	cfg.Journal = filepath.Join(c.dir, fmt.Sprintf("%04d.journal", c.started))
	w, err := startWorker(cfg, c.started)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	c.workers[w] = struct{}{}
	c.tails = append(c.tails, &tail{path: cfg.Journal, process: w.number, ended: w.Ended()})
	go func() {
		<-w.Ended()
		asked := w.Err() == nil && w.mayEnd.Load()
		if !errors.Is(w.Err(), consumer.ErrKilled) && !asked && !c.endRequested.Load() {
			c.t.Errorf("consumer %d ended unexpectedly: %v; its output:\n%s", w.number, w.Err(), w.Output())
			c.abort(errors.New("a consumer ended unexpectedly"))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.workers, w)
		if c.killsRemainLocked() {
			c.fewest = min(c.fewest, len(c.workers))
		}
	}()
	return w
}

// killsRemainLocked reports whether kills are still to come.
func (c *chaos) killsRemainLocked() bool { return c.numKillsLocked()+c.missed < len(c.plan.orders) }

func (c *chaos) numKillsLocked() int {
	n := 0
	for _, k := range c.kills {
		n += k
	}
	return n
}

// endWorkers ends the consumers gracefully and reports whether all of them did.
func (c *chaos) endWorkers() bool {
	c.endRequested.Store(true)
	c.mu.Lock()
	all := maps.Clone(c.workers)
	c.mu.Unlock()
	for w := range all {
		w.terminate()
	}
	ok := true
	for w := range all {
		if err := w.await(toEnd); err != nil {
			c.t.Logf("consumer %d: %v; its output:\n%s", w.number, err, w.Output())
			ok = false
		}
	}
	return ok
}

// follow reads the journals while they grow.
func (c *chaos) follow(ctx context.Context) {
	for {
		c.refresh()
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *chaos) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var growing []*tail
	for _, t := range c.tails {
		ended := t.hasEnded() // before the read, so that nothing follows it
		lines, err := t.more()
		if ended && t.torn > 0 {
			err = fmt.Errorf("%s ends with half a line: a write was not whole", t.path)
		}
		if err != nil {
			c.t.Error(err)
			c.abort(err)
		}
		if !ended {
			growing = append(growing, t)
		}
		c.lines = append(c.lines, lines...)
		for _, l := range lines {
			switch l.kind {
			case joined:
				c.joined[l.process] = true
			case succeeded:
				c.done[l.id] = true
			case killed:
				c.ending[l.process] = true
			case changed:
				if l.text == orderCanceled {
					c.canceled[l.process]++
				}
			case entered, failed, lostConnection, ignored, refused: // only for the checker
			}
		}
	}
	c.tails = growing
}

// settle waits until every message is accounted for and the group has settled all. It gives up if the broker reports
// twice, some time apart, that all is settled although messages are missing.
func (c *chaos) settle(ctx context.Context) (settled bool, detail string) {
	const maxWait = 5 * time.Second
	var since time.Time
	for {
		n, d, err := c.sys.unsettled(ctx)
		detail = fmt.Sprintf("%d unsettled:%s", n, d)
		if err != nil {
			detail = err.Error()
		}
		switch {
		case err != nil || n > 0:
			since = time.Time{}
		case c.accounted(ctx):
			return true, ""
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > maxWait:
			return true, ""
		}
		if !consumer.Pause(ctx, 100*time.Millisecond) {
			return false, detail
		}
	}
}

// accounted reports whether every message was committed or is in the DLQ.
func (c *chaos) accounted(ctx context.Context) bool {
	c.refresh()
	dead, err := c.sys.dead(ctx)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := maps.Clone(c.done)
	for _, l := range dead {
		ended[l.id] = true
	}
	return len(ended) == len(c.plan.items)
}

// counts formats kills in the order of the states.
func counts(kills map[state]int) string {
	var parts []string
	for _, st := range append(states, anywhere) {
		parts = append(parts, fmt.Sprintf("%s %d", st, kills[st]))
	}
	return strings.Join(parts, ", ")
}
