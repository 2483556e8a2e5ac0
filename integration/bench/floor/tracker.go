package floor

import (
	"slices"
	"sync"
	"sync/atomic"
)

// tracker records which records of a partition are settled, and so which offset may be committed. It is safe for
// concurrent use.
type tracker struct {
	bell chan struct{} // gets a value when at most ring records are unsettled
	open atomic.Int64  // number of records that were read and are not settled
	ring atomic.Int64

	mu      sync.Mutex
	entries []*entry // read and not committed, in the order of their offsets
	first   int      // the lowest of them that is not settled
	offset  int64    // behind the last that all below are settled; -1 for none
}

func newTracker() *tracker {
	t := &tracker{bell: make(chan struct{}, 1), offset: -1}
	t.ring.Store(-1)
	return t
}

func (t *tracker) add(e *entry) {
	t.open.Add(1)
	t.mu.Lock()
	t.entries = append(t.entries, e)
	t.mu.Unlock()
}

func (t *tracker) settle(e *entry) {
	t.mu.Lock()
	e.settled = true
	for t.first < len(t.entries) && t.entries[t.first].settled {
		t.offset = t.entries[t.first].record.Offset + 1
		t.entries[t.first] = nil
		t.first++
	}
	if t.first > len(t.entries)/2 {
		t.entries = slices.Delete(t.entries, 0, t.first)
		t.first = 0
	}
	t.mu.Unlock()
	if t.open.Add(-1) > t.ring.Load() {
		return
	}
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// unsettled returns the number of records that were read and are not settled.
func (t *tracker) unsettled() int { return int(t.open.Load()) }

// ringAt sets the number of unsettled records at which the bell rings.
func (t *tracker) ringAt(open int) { t.ring.Store(int64(open)) }

// next is the offset to commit; -1 for none yet.
func (t *tracker) next() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offset
}
