package perkey

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// queueModel is a partition of an origin with its levels, and a reader that is killed at times, as Queues sees them.
// A string of bytes chooses the steps. A violated promise panics with a text.
type queueModel struct {
	draw    func(n int) int
	keys    []uint64 // of the origin's records
	settled []bool   // acked or dead-lettered in any session
	copies  []*levelCopy
	now     time.Time

	// The session, which a kill forgets.
	queues      *Queues
	next        int // of the origin
	mailbox     mailbox
	settledHere []bool  // settled in this session
	placed      []*Copy // of the origin: read, and not asked about
	running     []*Copy
	waiting     []*Copy              // held copies that wait
	writing     []*Copy              // copies that must be parked
	written     []*Copy              // a retry or a parked copy is written, and the source is not settled
	refused     []*Copy              // refused hops, which will be dead-lettered
	nextCopy    map[*Copy]*levelCopy // on a level, which is written or will be
	origin      map[int]bool         // acked
	copyOf      map[*Copy]*levelCopy // its copy on a level; nil for the origin's
}

// levelCopy is a copy on a level.
type levelCopy struct {
	offset, attempts int
	due              time.Time
	acked, read      bool
	atStart          bool // it existed when the session began
}

const maxAttempts = 3

func newQueueModel(records, keys int, draw func(int) int) *queueModel {
	w := &queueModel{draw: draw, settled: make([]bool, records), now: time.UnixMilli(1_000_000), origin: make(map[int]bool)}
	for range records {
		w.keys = append(w.keys, uint64(draw(keys)))
	}
	w.restart()
	return w
}

// restart begins a session: the origin is read again from its lowest unsettled record.
func (w *queueModel) restart() {
	w.next = 0
	for w.next < len(w.keys) && w.origin[w.next] {
		w.next++
	}
	for i := w.next; i < len(w.keys); i++ { // the last commit may list offsets above the lowest unsettled one
		if w.draw(2) == 0 {
			delete(w.origin, i)
		}
	}
	w.queues = newQueues(new(atomic.Int64))
	l := &Loader{Queues: w.queues, From: int64(w.next)}
	l.clear()
	w.queues.originEnd = func() int64 { return int64(len(w.keys)) }
	w.placed = nil
	w.mailbox = mailbox{notify: func() {}}
	w.running, w.waiting, w.writing, w.written, w.refused = nil, nil, nil, nil, nil
	w.nextCopy, w.copyOf = make(map[*Copy]*levelCopy), make(map[*Copy]*levelCopy)
	w.settledHere = make([]bool, len(w.keys))
	// The last ack on a level may not have been committed.
	for _, c := range w.copies {
		if c.acked && w.draw(8) == 0 {
			c.acked = false
		}
		c.read = false
		c.atStart = !c.acked
		if c.atStart {
			own := w.copyAt(c)
			l.addLoaded(&own, c.due)
		}
	}
	for n := w.next; n < int(w.queues.highest); n++ {
		if !w.origin[n] {
			l.addExpected(keyOffset{w.keys[n], int64(n)}, 0)
		}
	}
	l.finish()
}

func (w *queueModel) copyAt(c *levelCopy) Copy {
	return Copy{keyOffset: keyOffset{w.keys[c.offset], int64(c.offset)}, attempts: int32(c.attempts), counted: c.atStart, mailbox: &w.mailbox}
}

func (w *queueModel) step() {
	switch w.draw(10) {
	case 0, 1:
		w.readOrigin()
		if w.draw(3) > 0 {
			w.beginNext()
		}
	case 2, 3:
		if c := w.pickCopy(func(c *levelCopy) bool { return !c.due.After(w.now) }); c != nil {
			w.readCopy(c)
		}
	case 4:
		if c := popRandom(&w.running, w.draw); c != nil {
			w.settleCopy(c)
		}
	case 5:
		if c := popRandom(&w.running, w.draw); c != nil {
			w.fail(c)
		}
	case 6:
		if c := popRandom(&w.writing, w.draw); c != nil {
			if w.draw(8) == 0 {
				w.deadLetter(c)
			} else {
				w.write(c, int(c.attempts))
			}
		}
	case 7:
		if c := popRandom(&w.written, w.draw); c != nil {
			w.park(c)
		}
	case 8:
		w.now = w.now.Add(time.Duration(w.draw(2000)) * time.Millisecond)
	case 9:
		switch w.draw(14) {
		case 0:
			w.restart()
		case 1: // it hops, and the hop may be in doubt
			if c := w.pickCopy(func(c *levelCopy) bool { return c.due.After(w.now) }); c != nil {
				w.hop(c)
			}
		case 3: // it waits too long for a slow handler
			if c := popRandom(&w.waiting, w.draw); c != nil {
				if !w.queues.stopWaiting(c) {
					w.waiting = append(w.waiting, c) // a duplicate
					break
				}
				w.nextCopy[c] = &levelCopy{offset: int(c.offset), due: w.now.Add(levelRecheck)}
				w.writing = append(w.writing, c)
			}
		case 4:
			if c := popRandom(&w.refused, w.draw); c != nil {
				w.deadLetter(c)
			}
		case 2: // written twice
			if c := w.pickCopy(func(*levelCopy) bool { return true }); c != nil {
				w.add(*c)
			}
		case 12: // a process that was cut off still writes what it has read
			from := int(w.queues.from)
			if from == len(w.keys) {
				break
			}
			w.add(levelCopy{offset: from + w.draw(len(w.keys)-from), attempts: w.draw(2), due: w.now.Add(time.Duration(w.draw(1000)) * time.Millisecond)})
		case 13:
			w.beginNext()
		case 5:
			if c := popRandom(&w.waiting, w.draw); c != nil {
				w.expire(c)
			}
		case 6:
			if c := w.pickCopy(func(c *levelCopy) bool { return !c.due.After(w.now) }); c != nil {
				own := w.copyAt(c)
				c.read, w.copyOf[&own] = true, c
				w.expire(&own)
			}
		}
	}
	w.askAgain()
}

// readOrigin makes the lane of the origin read a record, if there is one.
func (w *queueModel) readOrigin() {
	switch n := w.next; {
	case n == len(w.keys):
		return
	case w.origin[n]: // the last commit lists it
		w.queues.skip(int64(n), 0)
	default:
		c := &Copy{keyOffset: keyOffset{w.keys[n], int64(n)}, fromOrigin: true, mailbox: &w.mailbox}
		w.queues.place(c)
		w.placed = append(w.placed, c)
	}
	w.next++
}

// beginNext makes that lane ask about the record that it read first, or dead-letters it without.
func (w *queueModel) beginNext() {
	if len(w.placed) == 0 {
		return
	}
	c := w.placed[0]
	w.placed = w.placed[1:]
	if w.draw(16) == 0 {
		w.expire(c)
	} else {
		w.ask(c)
	}
}

// readCopy makes a lane read and ask about a copy on a level.
func (w *queueModel) readCopy(c *levelCopy) {
	own := w.copyAt(c)
	c.read = true
	w.copyOf[&own] = c
	w.ask(&own)
}

// pickCopy chooses a waiting copy that matches ok.
func (w *queueModel) pickCopy(ok func(*levelCopy) bool) *levelCopy {
	var found []*levelCopy
	for _, c := range w.copies {
		if !c.acked && !c.read && ok(c) {
			found = append(found, c)
		}
	}
	if found == nil {
		return nil
	}
	return found[w.draw(len(found))]
}

func popRandom(from *[]*Copy, draw func(int) int) *Copy {
	if len(*from) == 0 {
		return nil
	}
	i := draw(len(*from))
	c := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return c
}

// add writes a copy to a level. A lane reads it at once, and holds it.
func (w *queueModel) add(c levelCopy) *levelCopy {
	c.acked, c.read, c.atStart = false, false, false
	w.copies = append(w.copies, &c)
	own := w.copyAt(&c)
	w.queues.addSeen(&own, c.due)
	return &c
}

func (w *queueModel) ask(c *Copy) {
	n := int(c.offset)
	v, until := w.queues.ask(c, w.now, w.draw(2) == 0 && !c.fromOrigin)
	switch v {
	case verdictRun:
		if w.settledHere[n] {
			panic(fmt.Sprintf("%d runs again, which this session settled", n))
		}
		for _, r := range w.running {
			if r.keyOffset == c.keyOffset {
				panic(fmt.Sprintf("%d runs twice at once", n))
			}
			if r.key == c.key {
				panic(fmt.Sprintf("%d runs beside %d, which has its key", n, r.offset))
			}
		}
		for m := range n {
			if w.keys[m] == w.keys[n] && !w.settled[m] && !w.settled[n] {
				panic(fmt.Sprintf("%d runs before %d is settled", n, m))
			}
		}
		w.running = append(w.running, c)
	case verdictPark:
		w.nextCopy[c] = &levelCopy{offset: n, due: until}
		w.writing = append(w.writing, c)
	case verdictHold:
		w.copyOf[c].due, w.copyOf[c].read = until, false
	case verdictDrop:
		w.ack(c)
		if !w.settled[n] && w.origin[n] && !slices.ContainsFunc(w.copies, func(o *levelCopy) bool { return o.offset == n && !o.acked }) {
			panic(fmt.Sprintf("%d is lost", n))
		}
	case verdictUnordered, verdictJoin: // no lane of the model runs batches
		panic(fmt.Sprintf("%d has no order", n))
	case verdictWait:
		w.waiting = append(w.waiting, c)
	}
}

// askAgain asks again about copies in the mailbox.
func (w *queueModel) askAgain() {
	for len(w.mailbox.copies) > 0 {
		for _, c := range w.queues.collect(&w.mailbox) {
			if i := slices.Index(w.waiting, c); i >= 0 { // it has not expired
				w.waiting = slices.Delete(w.waiting, i, i+1)
				w.ask(c)
			}
		}
	}
	for _, queue := range w.queues.queues {
		first := queue.first()
		if first == nil {
			continue // other copies of settled records may be left
		}
		for _, rec := range queue.records[queue.head:] {
			if rec.held != nil && rec.held.waits && (first.held == nil || first.held.waits) {
				panic(fmt.Sprintf("%d waits for %d, which no lane holds", rec.offset, first.offset))
			}
		}
	}
}

func (w *queueModel) ack(c *Copy) {
	if on := w.copyOf[c]; on != nil {
		on.acked = true
	} else {
		w.origin[int(c.offset)] = true
	}
}

func (w *queueModel) settleCopy(c *Copy) {
	w.settled[c.offset], w.settledHere[c.offset] = true, true
	w.ack(c)
	w.queues.settle(c)
}

func (w *queueModel) fail(c *Copy) {
	if int(c.attempts)+1 >= maxAttempts {
		w.settleCopy(c) // dead-lettered
		return
	}
	w.nextCopy[c] = &levelCopy{offset: int(c.offset), due: w.now.Add(time.Duration(w.draw(1000)) * time.Millisecond)}
	w.write(c, int(c.attempts)+1)
}

func (w *queueModel) write(c *Copy, attempts int) {
	n := w.nextCopy[c]
	n.attempts = attempts
	w.nextCopy[c] = w.add(*n)
	w.written = append(w.written, c)
}

func (w *queueModel) park(c *Copy) {
	w.ack(c)
	w.queues.park(c, w.nextCopy[c].attempts, w.nextCopy[c].due)
}

func (w *queueModel) hop(c *levelCopy) {
	own := w.copyAt(c)
	if w.queues.dropStale(&own) {
		c.acked = true
		return
	}
	if w.draw(4) == 0 {
		c.read, w.copyOf[&own] = true, c
		w.refused = append(w.refused, &own)
		return
	}
	w.add(*c)
	if w.draw(3) == 0 {
		return // the report of its ack is lost
	}
	c.acked = true
	w.queues.hopped(&own)
}

// expire dead-letters a copy without asking, unless it is stale.
func (w *queueModel) expire(c *Copy) {
	if w.queues.dropStale(c) {
		w.ack(c)
		return
	}
	w.deadLetter(c)
}

// deadLetter dead-letters a copy that its level refuses, or that has expired.
func (w *queueModel) deadLetter(c *Copy) {
	inHand := func(o *Copy) bool { return o != c && o.keyOffset == c.keyOffset }
	another := slices.ContainsFunc(slices.Concat(w.placed, w.running, w.waiting, w.writing, w.written), inHand) // it continues
	w.settled[c.offset], w.settledHere[c.offset] = true, w.settledHere[c.offset] || !another
	w.ack(c)
	w.queues.deadLetter(c)
}

// finish lets all records settle.
func (w *queueModel) finish() {
	for range 100_000 {
		if !slices.Contains(w.settled, false) && len(w.running)+len(w.writing)+len(w.written)+len(w.refused) == 0 &&
			!slices.ContainsFunc(w.copies, func(c *levelCopy) bool { return !c.acked }) && w.next == len(w.keys) && len(w.placed) == 0 {
			if n := w.queues.onLevels.Load(); n != 0 || len(w.queues.queues) != 0 {
				panic(fmt.Sprintf("%d are said to wait in %d queues when all is settled", n, len(w.queues.queues)))
			}
			return
		}
		switch {
		case w.next < len(w.keys):
			w.readOrigin()
		case len(w.placed) > 0:
			w.beginNext()
		case len(w.running) > 0:
			w.fail(popRandom(&w.running, w.draw))
		case len(w.writing) > 0:
			c := popRandom(&w.writing, w.draw)
			w.write(c, int(c.attempts))
		case len(w.written) > 0:
			w.park(popRandom(&w.written, w.draw))
		case len(w.refused) > 0:
			w.deadLetter(popRandom(&w.refused, w.draw))
		default:
			w.now = w.now.Add(time.Second)
			for _, c := range w.copies {
				if !c.acked && !c.read && !c.due.After(w.now) {
					w.readCopy(c)
				}
			}
		}
		w.askAgain()
	}
	panic(fmt.Sprintf("it never ends: settled %v, %d run, %d and %d are written", w.settled, len(w.running), len(w.writing), len(w.written)))
}

func (w *queueModel) run(steps int) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if text, ok := v.(string); ok {
				err = fmt.Errorf("%s", text) //nolint:err113 // a test's
				return
			}
			panic(v)
		}
	}()
	for range steps {
		w.step()
	}
	w.finish()
	return nil
}
