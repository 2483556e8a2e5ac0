package kafka

// tracker knows which of the records read from a partition are settled, and how
// far the group may commit: up to the lowest that is not. Offsets need not be
// contiguous; records are numbered in the order in which they are read. It
// belongs to the partition's one goroutine.
type tracker struct {
	ring  []tracked // a power of two long
	first uint64    // number of the lowest unsettled record
	next  uint64    // number of the record that is read next
	mark  int64     // what may be committed: one above the last settled offset
}

type tracked struct {
	offset  int64
	settled bool
}

// add registers a record that was read and returns its number.
func (t *tracker) add(offset int64) uint64 {
	if n := t.next - t.first; n == uint64(len(t.ring)) {
		t.grow()
	}
	t.ring[t.next&uint64(len(t.ring)-1)] = tracked{offset: offset}
	t.next++
	return t.next - 1
}

func (t *tracker) grow() {
	bigger := make([]tracked, max(256, 2*len(t.ring)))
	for n := t.first; n < t.next; n++ {
		bigger[n&uint64(len(bigger)-1)] = t.ring[n&uint64(len(t.ring)-1)]
	}
	t.ring = bigger
}

// settle notes that a record is settled. moved tells whether more may be
// committed than before; mark says how much.
func (t *tracker) settle(number uint64) (moved bool) {
	mask := uint64(len(t.ring) - 1)
	t.ring[number&mask].settled = true
	for t.first < t.next && t.ring[t.first&mask].settled {
		t.mark = t.ring[t.first&mask].offset + 1
		t.first++
		moved = true
	}
	return moved
}

// offset is that of a record that is not below the lowest unsettled one.
func (t *tracker) offset(number uint64) int64 { return t.ring[number&uint64(len(t.ring)-1)].offset }

// above is how many records are settled above the lowest unsettled one.
func (t *tracker) above() (n int) {
	for i := t.first; i < t.next; i++ {
		if r := t.ring[i&uint64(len(t.ring)-1)]; r.settled {
			n++
		}
	}
	return n
}
