package kafka

import (
	"slices"
	"time"
)

// What the lanes tell of their copies, and where they find what to ask for again.

// done says that the record of a copy was acked or dead-lettered.
func (ls *lines) done(c *lineCopy) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln, i, found := ls.find(c); found && ln.items[i].hand == c {
		ls.end(ln, i, c)
	}
}

// bury says that the record of a copy was dead-lettered on its way to a level, which
// refuses it. It may have asked, or, for a hop, not. All its other copies are dropped
// when they come, but for one in hand.
func (ls *lines) bury(c *lineCopy) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, i, found := ls.find(c)
	if !found || ln.items[i].at != c.at {
		return
	}
	if it := &ln.items[i]; it.hand != nil && it.hand != c {
		// That one runs, or this is what became of it, which its lane has not told
		// yet. When it does there is nothing left to wait for.
		it.buried = true
		ls.drop(ln, i, c)
		return
	}
	ls.end(ln, i, c)
}

// end settles the record of a copy, and lets those behind it go.
func (ls *lines) end(ln *line, i int, c *lineCopy) {
	it := &ln.items[i]
	it.hand, it.done = nil, true
	ls.onLevel(it, false)
	if c.offset < ls.from || c.offset >= ls.next {
		if ls.settled == nil {
			ls.settled = make(map[place]int64)
		}
		ls.settled[c.place] = c.at
	}
	first := ln.isFirst(i)
	ls.drop(ln, i, c)
	ls.wake(c.key, ln, first)
}

// park says that the record of a copy was written to a level, to come back with so
// many attempts behind it when it is due.
func (ls *lines) park(c *lineCopy, attempts int, due time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, i, found := ls.find(c)
	if !found || ln.items[i].hand != c {
		return
	}
	it := &ln.items[i]
	if it.buried {
		ls.end(ln, i, c)
		return
	}
	it.hand, it.due, it.attempts = nil, due.UnixMilli(), max(it.attempts, int32(attempts))
	ls.onLevel(it, true)
	if c.counted {
		it.copies--
	}
	first := ln.isFirst(i)
	if _, known := ls.strays[c.place]; known {
		ls.remove(ln, i)
	}
	ls.wake(c.key, ln, first)
}

// hopped says that a copy moved on to another level without having asked.
func (ls *lines) hopped(c *lineCopy) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln, i, found := ls.find(c); found && c.counted {
		ln.items[i].copies--
		ls.tidy(c.key, ln, i)
	}
}

// leave has a copy wait no more in hand: the lane writes it to a level. It is false
// for one that was told to ask again, or of whose record another copy is in hand.
func (ls *lines) leave(c *lineCopy) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, i, found := ls.find(c)
	if !found || ln.items[i].hand != c || !c.waits {
		return false
	}
	c.waits = false
	ln.waiting--
	return true
}

// giveUp says that the lane has a copy no more and leaves it unsettled: its record
// is where it was read, and nothing behind it may run.
func (ls *lines) giveUp(c *lineCopy) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, i, found := ls.find(c)
	if !found {
		return
	}
	if ln.items[i].hand != c {
		ln.twins = slices.DeleteFunc(ln.twins, func(t *lineCopy) bool { return t == c })
		return
	}
	if c.waits {
		c.waits = false
		ln.waiting--
	}
	ln.items[i].hand = nil
	ls.wake(c.key, ln, ln.isFirst(i))
}

// stale reports whether a copy that is to hop, which is nobody's business, is out of
// date: then it is dropped.
func (ls *lines) stale(c *lineCopy) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.strays[c.place]; known {
		return false
	}
	ln, i, found := ls.find(c)
	if !found {
		return ls.wasSettled(c)
	}
	it := &ln.items[i]
	if it.at != c.at || !it.done && c.attempts >= it.attempts {
		return false
	}
	ls.drop(ln, i, c)
	return true
}

// seen says that a lane has read a copy on a level, which is due then.
func (ls *lines) seen(c *lineCopy, due time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.strays[c.place]; known || c.counted {
		return
	}
	ls.high = max(ls.high, c.offset)
	ln, i, found := ls.find(c)
	switch {
	case found && ln.items[i].at == c.at:
		it := &ln.items[i]
		it.attempts, it.unread = max(it.attempts, c.attempts), false
		ls.onLevel(it, true)
		if it.hand == nil {
			it.due = due.UnixMilli()
		}
	case !found && !ls.wasSettled(c):
		ln, i = ls.insert(ln, i, c, item{offset: c.offset, at: c.at, attempts: c.attempts, due: due.UnixMilli()})
		ls.onLevel(&ln.items[i], true)
	}
}

// collect empties a mailbox.
func (ls *lines) collect(box *mailbox) []*lineCopy {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	copies := box.copies
	box.copies = nil
	return copies
}
