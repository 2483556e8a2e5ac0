package kafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// ahead is what is settled of a partition although its lane has not come so far, or
// holds it: the lane passes over it. A walker and the lane share it. What a walker takes
// is not due yet, and what a lane lets go is, by the same clock: they are never after
// the same record. Its nil value knows of nothing, and is the origin's.
type ahead struct {
	c     *control
	topic string
	at    waitPlace

	some atomic.Bool // there may be something to pass over
	news atomic.Bool // there is something that the lane may hold

	mu        sync.Mutex
	settled   blocks
	own       []string              // our sessions: one for each life of the topic, the present one last
	strangers map[string]struct{}   // sessions that were in another life of the topic
	gone      []blockRef            // theirs, to be forgotten in the control topic, too
	changed   map[blockRef]struct{} // blocks that are not written down yet
	taken     map[int64]struct{}    // being copied now
	bell      chan<- struct{}       // wakes the lane: it may sleep until what it holds is due

	// Guarded by the control's lock.
	known bool               // all that was settled before: nothing is copied before that
	stop  context.CancelFunc // of the walker; nil while there is none
	until time.Time          // when the drain is to be over; zero before it begins

	walking sync.WaitGroup
	over    context.Context // the session's
}

// blockRef is a block of a partition.
type blockRef struct {
	n       int64
	session string
}

// begin says that a lane begins to read a partition; end that it has ended. It waits, a
// while, until all is known that was settled before. What is known later is passed over
// from then on, see learn.
func (c *control) begin(over context.Context, topic string, partition int32, level time.Duration) *ahead {
	if !c.on() {
		return nil
	}
	known := false
	if c.state.Load() == controlReads {
		ctx, cancel := context.WithTimeout(over, commandsLate)
		defer cancel()
		err := c.refresh(ctx)
		if err != nil && over.Err() == nil {
			c.tell(err)
		}
		known = err == nil
	}
	a := &ahead{
		c: c, topic: topic, at: waitPlace{level, partition}, own: []string{newSession()}, strangers: make(map[string]struct{}),
		changed: make(map[blockRef]struct{}), taken: make(map[int64]struct{}), known: known, over: over,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.settled = c.book.settled[a.at].shared()
	a.some.Store(len(a.settled) > 0)
	for key := range c.counts { // somebody else may have counted on
		if key.at == a.at {
			delete(c.counts, key)
			delete(c.dirty, key)
		}
	}
	c.aheads[a] = struct{}{}
	return a
}

func newSession() string { return strings.ToLower(rand.Text()[:10]) }

// leave stops the walker while its lane drains; both are to be done at the deadline.
func (a *ahead) leave(deadline time.Time) {
	if a == nil {
		return
	}
	a.c.mu.Lock()
	a.until = deadline
	stop := a.stop
	a.c.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// end waits until the walker has written down what it has done.
func (c *control) end(a *ahead) {
	if a == nil {
		return
	}
	c.mu.Lock()
	delete(c.aheads, a)
	stop, until := a.stop, time.Now().Add(c.r.lastWords())
	if !a.until.IsZero() && a.until.Before(until) {
		until = a.until
	}
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	a.walking.Wait()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	_ = c.save(ctx) // counts alone: what is settled was written down by the walker
}

// lastWords is how long a part of a drain may take that is not about handlers.
func (r *reader) lastWords() time.Duration {
	return min(r.client.cfg.SendTimeout, r.client.cfg.DrainTimeout/2)
}

// staff gives every partition on which messages wait a walker while there are commands.
func (c *control) staff() {
	if c.standing.Load() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.aheads {
		if a.stop != nil || !a.known || !a.until.IsZero() {
			continue
		}
		ctx, cancel := context.WithCancel(a.over)
		a.stop = cancel
		a.walking.Go(func() {
			defer cancel()
			(&walker{c: c, a: a}).run(ctx)
			c.mu.Lock()
			a.stop = nil
			c.mu.Unlock()
		})
	}
}

// learn takes over what the control topic says by now: all that was settled before the
// lane began, where that could not be read then, and what is settled beside it by who
// had the partition before, a process that was stopped, until its heartbeat fails.
func (a *ahead) learn(all blocks) {
	a.mu.Lock()
	more := false
	for n, sessions := range all {
		for session, b := range sessions {
			_, strange := a.strangers[session]
			if strange || slices.Contains(a.own, session) || a.settled[n][session] == b {
				continue
			}
			a.settled.put(n, session, b)
			more = true
		}
	}
	bell := a.bell
	a.mu.Unlock()
	if more {
		a.some.Store(true)
		a.ring(bell)
	}
}

// ring has the lane look for what it holds.
func (a *ahead) ring(bell chan<- struct{}) {
	a.news.Store(true)
	select {
	case bell <- struct{}{}:
	default:
	}
}

// pass tells whether the lane is to pass over a record that it has just read. What
// another topic of this name had at the offset is forgotten, and with it all that was
// settled by who settled that.
func (a *ahead) pass(offset int64, at time.Time) bool {
	if a == nil || !a.some.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, session := range a.settled.strangers(offset, at.UnixMilli()) {
		a.disown(session)
	}
	return a.settled.has(offset, at.UnixMilli())
}

// disown forgets what a session has settled: it was in another life of the topic.
func (a *ahead) disown(session string) {
	a.strangers[session] = struct{}{}
	for n, sessions := range a.settled {
		if sessions[session] != nil {
			a.settled.drop(n, session)
			a.gone = append(a.gone, blockRef{n, session})
		}
	}
	if session == a.own[len(a.own)-1] {
		a.own = append(a.own, newSession())
	}
}

// anew says that the topic was deleted and made anew while it is read: what is settled
// from now on has nothing to do with what was.
func (a *ahead) anew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = append(a.own, newSession())
}

// fate is what becomes of a record that a lane is about to let go.
type fate uint8

const (
	itsOwn  fate = iota // the lane does what it would
	copying             // a copy is on its way: look again
	settledAhead
)

func (a *ahead) fate(offset int64, at int64) fate {
	if a == nil || !a.some.Load() {
		return itsOwn
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.taken[offset]; ok {
		return copying
	}
	if a.settled.has(offset, at) {
		return settledAhead
	}
	return itsOwn
}

// watch has a lane pass over what is settled ahead.
func (l *lane) watch(a *ahead) {
	if l.ahead = a; a == nil {
		return
	}
	if l.box.bell == nil {
		l.box.bell = make(chan struct{}, 1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bell = l.box.bell
}

// shed drops from the hold what was settled ahead.
func (l *lane) shed() {
	l.hold.Delete(func(e *entry) bool {
		if l.ahead.fate(l.track.offset(e.number), e.written) != settledAhead {
			return false
		}
		l.passOver(e)
		return true
	})
}

// leaves tells whether an entry, whose time has come, is the lane's to let go.
func (l *lane) leaves(e *entry, now time.Time) bool {
	switch l.ahead.fate(l.track.offset(e.number), e.written) {
	case settledAhead:
		l.passOver(e)
		return false
	case copying:
		l.hold.Put(now.Add(glimpse), e)
		return false
	default:
		return true
	}
}

// cancelled dead-letters an entry in flight that a command cancels.
func (l *lane) cancelled(e *entry) bool {
	if l.ahead == nil || l.lines != nil && e.then != toHandler { // what hops has not asked its line
		return false
	}
	cmd := l.ahead.c.cancelled(e, l.waits.level)
	if cmd == nil {
		return false
	}
	e.then = toHandler
	e.d = l.delivery(e)
	cause, a := cmd.Cancelled(), l.ahead
	dec := l.r.sub.Decide(*e.state, cause, time.Now())
	go func() {
		gone := l.r.sub.Forward(e.d, dec, cause) == nil
		if gone {
			a.c.tally(cmd.ID, a.at, func(p *progress) { p.Cancelled++ })
		}
		e.Moved(gone)
	}()
	return true
}

// take claims those of hits that are not due shortly; the lane keeps its hands off them.
func (a *ahead) take(hits []*hit, now time.Time) (taken []*hit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.some.Store(true)
	for _, h := range hits {
		if h.until.Sub(now) > walkMargin {
			a.taken[h.rec.offset] = struct{}{}
			taken = append(taken, h)
		}
	}
	return taken
}

// settle says which of the hits that were taken are settled; the others are the lane's
// again.
func (a *ahead) settle(taken, done []*hit) {
	a.mu.Lock()
	session := a.own[len(a.own)-1]
	for _, h := range done {
		a.settled.set(session, h.rec.offset, h.rec.at.UnixMilli())
		a.changed[blockRef{h.rec.offset / blockSize, session}] = struct{}{}
	}
	for _, h := range taken {
		delete(a.taken, h.rec.offset)
	}
	bell := a.bell
	a.mu.Unlock()
	if len(done) > 0 {
		a.ring(bell)
	}
}

// write notes in the control topic what is settled, with the counts.
func (a *ahead) write(ctx context.Context) error {
	a.mu.Lock()
	var entries []stateEntry
	written := make([]blockRef, 0, len(a.changed))
	for ref := range a.changed {
		b := a.settled[ref.n][ref.session]
		if b == nil {
			continue // it was forgotten
		}
		e, err := jsonEntry(blockKey(a.at, ref), b)
		if err != nil {
			a.mu.Unlock()
			return err
		}
		entries, written = append(entries, e), append(written, ref)
	}
	clear(a.changed)
	a.mu.Unlock()
	err := a.c.save(ctx, entries...)
	if err != nil {
		a.mu.Lock()
		for _, ref := range written {
			a.changed[ref] = struct{}{}
		}
		a.mu.Unlock()
		return fmt.Errorf("noting what is settled of %s/%d: %w", a.topic, a.at.partition, err)
	}
	return nil
}

// forget drops the blocks that end at or below an offset, and returns them, with those
// of other lives.
func (a *ahead) forget(offset int64) (dropped []blockRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	dropped, a.gone = a.gone, nil
	for n, sessions := range a.settled {
		if (n+1)*blockSize > offset {
			continue
		}
		for session := range sessions {
			ref := blockRef{n, session}
			delete(a.changed, ref)
			dropped = append(dropped, ref)
		}
		delete(a.settled, n)
	}
	return dropped
}

// told tells of what became of a hit, as a lane would.
func (a *ahead) told(h *hit, where string) {
	if h.cause != nil {
		a.c.r.sub.Tell(redeliver.DeadLettered{State: h.state, Where: where, Err: h.cause})
		return
	}
	a.c.r.sub.Tell(redeliver.Hopped{State: h.state, From: a.topic, To: where})
}
