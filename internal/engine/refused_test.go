package engine

import "testing"

// A lane does not keep an entry that a gater once refused in memory: its record may be large. Entries that were refused come first.
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

// A gater may let an entry run alone after it has refused it: then the entry needs no slot. It used to wait behind one that needs a
// slot, and that one for its end.
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

// A gater may let an entry run alone while it is ready. It used to stay behind one that needs a slot.
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
