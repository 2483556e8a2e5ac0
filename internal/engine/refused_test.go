package engine

import "testing"

// A lane does not keep a refused entry in memory after it has left the queue: its record may be large. Entries that were refused come first.
func TestALaneKeepsNoRefusedEntry(t *testing.T) {
	l := &lane[int]{}
	old, young := &entry[int]{phase: entryReady}, &entry[int]{phase: entryReady}
	l.ready[firstDelivery].Push(young)
	l.refused.Push(old)
	l.retryRefused()
	ready, refused := &l.ready[firstDelivery], &l.refused
	if ready.Len() != 2 || ready.Pop() != old || ready.Pop() != young || !refused.Empty() {
		t.Error("the two entries are not ready in their order")
	}
	for _, q := range []*FIFO[*entry[int]]{ready, refused} {
		for i, e := range q.items[:cap(q.items)] {
			if e != nil {
				t.Errorf("entry %d is kept", i)
			}
		}
	}
}

// A gater may let an entry run alone after it has refused it: then the entry needs no slot, and does not
// wait behind one that needs a slot.
func TestARefusedEntryThatRunsAloneNeedsNoSlot(t *testing.T) {
	l := &lane[int]{}
	other, suspect := &entry[int]{phase: entryReady}, &entry[int]{phase: entryReady}
	l.refused.Push(other)
	l.refused.Push(suspect)
	suspect.Alone = true
	l.retryRefused()
	if l.ready[noSlot].Len() != 1 || l.ready[noSlot].Peek() != suspect || l.ready[firstDelivery].Len() != 1 {
		t.Errorf("%d entries need no slot, %d need one; want the suspect and the other", l.ready[noSlot].Len(), l.ready[firstDelivery].Len())
	}
}

// A gater may let an entry run alone while it is ready. The entry does not stay behind one that needs a slot.
func TestAReadyEntryThatRunsAloneNeedsNoSlot(t *testing.T) {
	l := &lane[int]{}
	other, suspect := &entry[int]{phase: entryReady}, &entry[int]{phase: entryReady}
	l.pushReady(other)
	l.pushReady(suspect)
	suspect.Alone = true
	l.retryRefused()
	if l.ready[noSlot].Len() != 1 || l.ready[noSlot].Peek() != suspect || l.ready[firstDelivery].Len() != 1 {
		t.Errorf("%d entries need no slot, %d need one; want the suspect and the other", l.ready[noSlot].Len(), l.ready[firstDelivery].Len())
	}
}
