package kafka

import "slices"

// find returns the line of a copy's key, nil if there is none, and where in it the
// copy's record stands, or would.
func (ls *lines) find(c *lineCopy) (ln *line, i int, found bool) {
	if ln = ls.keys[c.key]; ln == nil {
		return nil, 0, false
	}
	if n := len(ln.items); ln.head == n || ln.items[n-1].offset < c.offset { // as a rule
		return ln, n, false
	}
	i, found = slices.BinarySearchFunc(ln.items[ln.head:], c.offset, func(it item, offset int64) int {
		switch {
		case it.offset < offset:
			return -1
		case it.offset > offset:
			return 1
		default:
			return 0
		}
	})
	return ln, ln.head + i, found
}

// insert puts an item at its place into a line, which it makes if there is none.
func (ls *lines) insert(ln *line, i int, c *lineCopy, it item) (*line, int) {
	if ln == nil {
		if n := len(ls.spare); n > 0 {
			ln, ls.spare = ls.spare[n-1], ls.spare[:n-1]
		} else {
			ln = new(line)
		}
		ls.keys[c.key] = ln
	}
	ln.items = slices.Insert(ln.items, i, it)
	return ln, i
}

// onLevel notes whether a record is on a level, and counts those that are.
func (ls *lines) onLevel(it *item, is bool) {
	if it.level == is {
		return
	}
	it.level = is
	if is {
		ls.behind.Add(1)
	} else {
		ls.behind.Add(-1)
	}
}

// first is the first record of a line that is not done; nil for none.
func (ln *line) first() *item {
	for i := ln.head; i < len(ln.items); i++ {
		if !ln.items[i].done {
			return &ln.items[i]
		}
	}
	return nil
}

// isFirst reports whether nothing before an item is unsettled.
func (ln *line) isFirst(i int) bool {
	for j := ln.head; j < i; j++ {
		if !ln.items[j].done {
			return false
		}
	}
	return true
}

// drop takes away a copy of an item, and the item when it was the last of one that is done.
func (ls *lines) drop(ln *line, i int, c *lineCopy) {
	if c.counted {
		ln.items[i].copies--
	}
	ls.tidy(c.key, ln, i)
}

func (ls *lines) tidy(key uint64, ln *line, i int) {
	if it := &ln.items[i]; it.done && it.copies <= 0 {
		ls.remove(ln, i)
		ls.tidyLine(key, ln)
	}
}

// remove takes an item, which nobody has in hand, out of its line.
func (ls *lines) remove(ln *line, i int) {
	ls.onLevel(&ln.items[i], false)
	if i > ln.head {
		ln.items = slices.Delete(ln.items, i, i+1)
		return
	}
	ln.items[i] = item{}
	ln.head++
	if ln.head >= 64 && ln.head > len(ln.items)/2 {
		n := copy(ln.items, ln.items[ln.head:])
		clear(ln.items[n:])
		ln.items, ln.head = ln.items[:n], 0
	}
}

// spareMost bounds the empty lines that are kept, and spareRoom the room of each.
const (
	spareMost = 4096
	spareRoom = 8
)

// tidyLine forgets a line without records. Who waits as a twin has one.
func (ls *lines) tidyLine(key uint64, ln *line) {
	if ls.keys[key] != ln || ln.head < len(ln.items) || len(ln.twins) > 0 {
		return
	}
	delete(ls.keys, key)
	if len(ls.spare) < spareMost && cap(ln.items) <= spareRoom {
		ln.items, ln.head = ln.items[:0], 0
		ls.spare = append(ls.spare, ln)
	}
}

// wake tells those of a line that must ask again after one of its records was
// settled, parked or given up; first says whether it was the first.
func (ls *lines) wake(key uint64, ln *line, first bool) {
	for _, c := range ln.twins {
		c.waits = false
		c.notify()
	}
	ln.twins = nil
	if next := ln.first(); first && next != nil {
		switch {
		case next.hand == nil && ln.waiting > 0: // what waited for it in hand is to be parked
			for i := ln.head; i < len(ln.items) && ln.waiting > 0; i++ {
				ln.rouse(ln.items[i].hand)
			}
		case next.hand != nil:
			ln.rouse(next.hand)
		}
	}
	ls.tidyLine(key, ln)
}

func (ln *line) rouse(c *lineCopy) {
	if c != nil && c.waits {
		c.waits = false
		ln.waiting--
		c.notify()
	}
}

// notify puts a copy into its lane's mailbox.
func (c *lineCopy) notify() {
	c.box.copies = append(c.box.copies, c)
	if len(c.box.copies) == 1 {
		c.box.ring()
	}
}

// astray notes that two different records claim one place of a key.
func (ls *lines) astray(ln *line, i int, c *lineCopy) {
	ls.noteStray(c.place)
	if ln.items[i].hand == nil {
		first := ln.isFirst(i)
		ls.remove(ln, i)
		ls.wake(c.key, ln, first)
	}
}

func (ls *lines) noteStray(p place) {
	if ls.strays == nil {
		ls.strays = make(map[place]struct{})
	}
	ls.strays[p] = struct{}{}
}
