package engine

import (
	"time"

	"github.com/redeliver/redeliver/driver"
)

// keyChain has the messages of one key in a lane, in their order. The first ones have been let in: they may begin.
//
// Usually one message at a time is let in, and the next one after its end. Where messages are handled in batches, the next one is
// let in as soon as the one before it waits for a batch. So a batch may have several messages of a key, in their order.
type keyChain[R any] struct {
	first, last *entry[R] // linked by entry.behind; some of them may have left
	next        *entry[R] // the first that was not let in; nil if all were
	joining     *entry[R] // let in last, and not yet in a queue for batches; nil for none
	begun       int       // let in, and not yet ended
	unfinished  int       // ended, and wait for an earlier one in finishInOrder
	closed      bool      // none is let in before begun is 0
}

// takeKey puts an entry behind the others of its key, unless it is there, and reports whether it may begin. An entry without a key
// may begin.
func (l *lane[R]) takeKey(e *entry[R]) bool {
	if e.Key == 0 {
		return true
	}
	if e.chain == nil {
		c := l.keys[e.Key]
		if c == nil {
			c = l.newChain()
			l.keys[e.Key] = c
			c.first = e
		} else {
			c.last.behind = e
		}
		c.last, e.chain = e, c
		if c.next == nil {
			c.next = e
		}
		if c.next == e && l.letsIn(c) {
			c.letIn(e)
		}
	}
	return e.letIn
}

func (l *lane[R]) newChain() *keyChain[R] {
	if n := len(l.spareChains); n > 0 {
		c := l.spareChains[n-1]
		l.spareChains = l.spareChains[:n-1]
		return c
	}
	if len(l.chainSlab) == 0 {
		l.chainSlab = make([]keyChain[R], slabSize)
	}
	c := &l.chainSlab[0]
	l.chainSlab = l.chainSlab[1:]
	return c
}

// maxSpareChains bounds the chains that are kept for reuse.
const maxSpareChains = 1024

// letsIn reports whether another message of a chain may begin.
func (l *lane[R]) letsIn(c *keyChain[R]) bool {
	return c.begun == 0 || !c.closed && c.joining == nil && c.begun < l.maxOfKey
}

// letIn lets in the next entry.
func (c *keyChain[R]) letIn(e *entry[R]) {
	if c.begun == 0 {
		c.closed = false
	}
	c.begun++
	c.next, c.joining = e.behind, e
	e.letIn = true
}

// leaveChain removes an entry, which has ended here, from the chain of its key, and lets in those behind it.
func (l *lane[R]) leaveChain(e *entry[R]) {
	c := e.chain
	if c == nil {
		return
	}
	e.chain = nil
	if e.letIn {
		e.letIn = false
		c.begun--
	}
	if c.joining == e {
		c.joining = nil
	}
	for c.first != nil && c.first.chain == nil {
		e := c.first
		c.first, e.behind = e.behind, nil
		if c.next == e {
			c.next = c.first
		}
	}
	if c.first == nil {
		delete(l.keys, e.Key)
		*c = keyChain[R]{}
		if len(l.spareChains) < maxSpareChains {
			l.spareChains = append(l.spareChains, c)
		}
		return
	}
	l.letInMore(c)
}

// letInMore lets in the messages of a chain that may begin now.
func (l *lane[R]) letInMore(c *keyChain[R]) {
	for c.next != nil && l.letsIn(c) {
		e := c.next
		if e.chain == nil { // it was abandoned, or returned
			c.next = e.behind
			continue
		}
		c.letIn(e)
		switch {
		case e.phase != entryChained: // it still runs: its answer will not count, and then it may begin
		case !e.Until.IsZero() && e.Until.After(time.Now()): // it waits in place
			l.held--
			l.wait(e)
		default:
			l.held--
			l.pushReady(e)
		}
	}
}

// joined lets in the next message after one that has been let in waits for a batch. Where later messages of a key wait for one
// that has failed, that one is alone of its key in its batch: otherwise the later ones would run in vain each time it fails.
func (l *lane[R]) joined(e *entry[R]) {
	c := e.chain
	if c == nil || c.joining != e {
		return
	}
	if e.Step == driver.StepHandle && l.e.sub.WaitsForFailed() && !e.current.Load().isFirst() {
		c.closed = true
	}
	c.joining = nil
	l.letInMore(c)
}

// recall makes an entry and those behind it wait again for the end of those before them. It is for orders in which messages wait for
// one that has failed.
func (l *lane[R]) recall(c *keyChain[R], from *entry[R]) {
	c.closed = true
	for e := from; e != nil && e != c.next; e = e.behind {
		if e.chain == nil || !e.letIn {
			continue
		}
		e.letIn = false
		c.begun--
		if c.joining == e {
			c.joining = nil
		}
		switch e.phase {
		case entryReady, entryWaits:
			if e.phase == entryReady {
				l.held++
			}
			e.phase = entryChained
		case entryRuns:
			e.recalled = true
			if e.batched != nil {
				e.batched.withdraw()
			}
		case entryRead, entryChained, entryGone: // it has not begun, or it has ended
		}
	}
	if from != nil {
		c.next = from
	}
}

// finishInOrder finishes a message that has ended. In a Router the messages of a batch end in any order. If a later one of a key were
// settled first, a kill would make the earlier one run after it.
func (l *lane[R]) finishInOrder(e *entry[R]) {
	c := e.chain
	if c != nil && c.waitsForAck(e) {
		e.finishes = true
		c.unfinished++
		return
	}
	l.finish(e)
	if c == nil || c.unfinished == 0 { // usually; the chain may be long
		return
	}
	for e := c.first; e != nil && c.unfinished > 0; {
		next := e.behind
		if e.finishes && !c.waitsForAck(e) {
			e.finishes = false
			c.unfinished--
			l.finish(e)
		}
		e = next
	}
}

// waitsForAck reports whether an earlier message than e has succeeded and has not ended yet.
func (c *keyChain[R]) waitsForAck(e *entry[R]) bool {
	for other := c.first; other != nil && other != e; other = other.behind {
		if other.chain == c && other.phase == entryRuns && other.current.Load().acked.Load() {
			return true
		}
	}
	return false
}

// recallFollowers is called when a message has ended. If it has failed in its batch, and those behind it wait for it, they wait
// again, also those that have already joined the queue for batches.
func (l *lane[R]) recallFollowers(e *entry[R]) {
	if !e.current.Load().holdsKey {
		return
	}
	if c := e.chain; c != nil {
		l.recall(c, e.behind)
	}
	e.batched.freeKey()
}

// requeue makes an entry whose answer does not count wait until it may begin again.
func (l *lane[R]) requeue(e *entry[R]) {
	e.phase, e.recalled = entryChained, false
	l.held++
	switch c := e.chain; {
	case l.isDraining(): // drain returns it
	case c != nil && c.first != e && l.e.sub.WaitsForFailed():
		if e.letIn {
			l.recall(c, e)
		}
		l.letInMore(c)
	case c != nil && !e.letIn:
		l.letInMore(c)
	default:
		l.held--
		l.pushReady(e)
	}
}

// joinRequest asks the lane to put a message into a queue for batches.
type joinRequest[R any] struct {
	e *entry[R]
	q *Batches
	m *Batched
}

// join implements anyEntry. The messages of a key join in their order, because each is let in when the one before it has joined.
func (e *entry[R]) join(q *Batches, m *Batched) {
	l := e.lane
	l.mu.Lock()
	if e.Key == 0 || l.closed { // after its lane's end a message is lost
		l.mu.Unlock()
		q.add(m)
		return
	}
	l.joins = append(l.joins, joinRequest[R]{e, q, m})
	if len(l.joins) == 1 {
		l.wake()
	}
	l.mu.Unlock()
}

// joinBatch puts a message into a queue for batches, unless an earlier one of its key has failed meanwhile.
func (l *lane[R]) joinBatch(j joinRequest[R]) {
	e, d := j.e, j.m.d
	if d.answerIgnored || e.recalled { // it may have been let in again meanwhile, but the gaters must be asked
		j.m.runAgain()
		return
	}
	if d.holdsKey { // a middleware calls its handler again after a failure
		d.holdsKey = false
		e.batched.freeKey()
	}
	e.batched = j.m
	l.maxOfKey = j.q.maxOfKey()
	j.q.add(j.m)
	l.joined(e)
}
