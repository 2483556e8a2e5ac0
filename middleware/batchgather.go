package middleware

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// epoch is where the clock of what gathers begins. To ask how long ago it was
// reads one clock; time.Now reads two.
var epoch = time.Now()

// gatherer is where messages of one subscription wait for their batch, the oldest
// first. There is no batch before it runs: what runs is what waits then, so one
// that had to wait for its turn takes along what came meanwhile.
type gatherer struct {
	config  BatchConfig
	fn      BatchFunc
	sub     *delayqueue.Subscription // nil for messages of other subscribers
	refused error

	mu         sync.Mutex
	head, tail *BatchMessage
	fresh      *BatchMessage // the oldest whose context nobody watches
	n, bytes   int
	alone      int // how many of them are to run alone
	running    int // batch functions
	spare      []BatchMessage
	armed      bool // a timer is set for the Timeout of the oldest
	looking    bool // and one to watch the contexts of those that wait for long
}

func newGatherer(c BatchConfig, fn BatchFunc, sub *delayqueue.Subscription) *gatherer {
	g := &gatherer{config: c, fn: fn, sub: sub}
	if sub == nil {
		return g
	}
	if sub.MaxInFlight > 0 && c.Size > sub.MaxInFlight {
		var ps redeliver.Problems
		ps.Add("BatchConfig.Size", c.Size, fmt.Sprintf(
			"must not be above the subscriber's MaxInFlight, %d, or no batch is ever full; raise MaxInFlight or lower Size", sub.MaxInFlight))
		g.refused = ps.Err()
		sub.Tell(redeliver.SubscriptionChanged{
			Origin: sub.Origin, Group: sub.Group, Change: "batches refused",
			Detail: "no message is handled until the service starts with another configuration", Err: g.refused,
		})
		return g
	}
	sub.Drain.Notify(g.kick)
	return g
}

// parked is the lock of a message that waits for its verdict: the gatherer's,
// which it lets go when it sleeps and has no use for when it wakes.
type parked gatherer

func (*parked) Lock()     {}
func (p *parked) Unlock() { p.mu.Unlock() }

// message is a new one. They are made many at a time, by the goroutines of the
// batches: what allocates takes a deep stack, which those of messages would have
// to grow. What a stuck function has holds its neighbours as well: a batch's
// worth at most. The caller holds mu.
func (g *gatherer) message() *BatchMessage {
	if len(g.spare) == 0 {
		return &BatchMessage{}
	}
	m := &g.spare[0]
	g.spare = g.spare[1:]
	return m
}

// join adds a message, which then waits for its verdict: that unlocks mu, which
// the caller holds, and no verdict is given before.
func (g *gatherer) join(m *BatchMessage) {
	m.verdict.L = (*parked)(g)
	m.since = time.Since(epoch)
	m.prev = g.tail
	if g.tail == nil {
		g.head = m
	} else {
		g.tail.next = m
	}
	g.tail = m
	if g.fresh == nil {
		g.fresh = m
	}
	g.n++
	g.bytes += len(m.Payload)
	if m.isAlone() {
		g.alone++
	}
	if !g.start(m.since) {
		g.arm(m.since)
	}
}

// kick runs what may run.
func (g *gatherer) kick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start(time.Since(epoch))
}

// start starts a batch when one may run. It is told what the time is. The caller
// holds mu.
func (g *gatherer) start(now time.Duration) bool {
	if g.running >= g.config.Concurrency || !g.ripe(now) {
		return false
	}
	g.running++
	go g.run()
	return true
}

// ripe tells whether what waits makes a batch. The caller holds mu.
func (g *gatherer) ripe(now time.Duration) bool {
	switch {
	case g.n == 0:
		return false
	case g.n >= g.config.Size, g.throttled(), g.config.Bytes > 0 && g.bytes >= g.config.Bytes, g.config.Timeout == NoWait, g.alone > 0:
		return true
	case g.sub != nil && g.sub.Drain.Draining():
		return true
	default:
		return now >= g.head.since+g.config.Timeout
	}
}

// throttled tells whether no more come: the subscription has shrunk, and all that
// may be in flight waits here. The caller holds mu.
func (g *gatherer) throttled() bool {
	if g.sub == nil {
		return false
	}
	limit := g.sub.Throttle.Limit()
	return limit > 0 && g.n >= limit
}

// take takes the messages of a batch out of the queue. The caller holds mu.
func (g *gatherer) take(now time.Duration) []*BatchMessage {
	if !g.ripe(now) { // some have left meanwhile
		return nil
	}
	all, bytes := make([]*BatchMessage, 0, min(g.n, g.config.Size)), 0
	for m := g.head; m != nil && len(all) < g.config.Size; m = g.head {
		if err := m.ctx.Err(); err != nil {
			g.dismiss(m)
			continue
		}
		bytes += len(m.Payload)
		if len(all) > 0 && (g.config.Bytes > 0 && bytes > g.config.Bytes || m.isAlone()) {
			break
		}
		g.unlink(m)
		all = append(all, m)
		if m.isAlone() {
			break
		}
	}
	return all
}

// unlink takes a message out of the queue. The caller holds mu.
func (g *gatherer) unlink(m *BatchMessage) {
	if g.fresh == m {
		g.fresh = m.next
	}
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		g.head = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		g.tail = m.prev
	}
	m.prev, m.next = nil, nil
	g.n--
	g.bytes -= len(m.Payload)
	if m.isAlone() {
		g.alone--
	}
	if m.unwatch != nil {
		m.unwatch()
		m.unwatch = nil
	}
	m.taken = true
}

// dismiss sends a message away whose context has ended. The caller holds mu.
func (g *gatherer) dismiss(m *BatchMessage) {
	g.unlink(m)
	if m.a != nil {
		m.a.Leave()
	}
	m.give(fmt.Errorf("waiting for a batch: %w", context.Cause(m.ctx)))
}

// arm sets what wakes the queue. Under load no timer is set for single messages
// or batches: one that was set before finds nothing to do. The caller holds mu.
func (g *gatherer) arm(now time.Duration) {
	if g.head == nil {
		return
	}
	if !g.armed && g.config.Timeout != NoWait {
		g.armed = true
		time.AfterFunc(max(0, g.head.since+g.config.Timeout-now), g.tick)
	}
	if !g.looking && g.fresh != nil {
		g.looking = true
		time.AfterFunc(max(0, g.fresh.since+delayqueue.Glance-now), g.look)
	}
}

func (g *gatherer) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	now := time.Since(epoch)
	// What is ripe and cannot start is started by the end of what runs.
	if !g.start(now) && !g.ripe(now) {
		g.arm(now)
	}
}

// look has the contexts watched of messages that have waited for a while. To
// watch one is dear, and most have left by then.
func (g *gatherer) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looking = false
	now := time.Since(epoch)
	for m := g.fresh; m != nil && m.since+delayqueue.Glance <= now; m = m.next {
		m.unwatch = context.AfterFunc(m.ctx, func() { g.leave(m) })
		g.fresh = m.next
	}
	if g.fresh != nil {
		g.looking = true
		time.AfterFunc(g.fresh.since+delayqueue.Glance-now, g.look)
	}
}

// leave takes a message out of the queue whose context has ended.
func (g *gatherer) leave(m *BatchMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.taken {
		g.dismiss(m)
	}
}
