package engine

import "testing"

// A lane does not keep an entry that a gater once refused in memory: its record may be large. Entries that were refused come first.
func TestALaneKeepsNoRefusedEntry(t *testing.T) {
	l := &lane[int]{}
	old, young := &entry[int]{phase: entryReady}, &entry[int]{phase: entryReady}
	l.ready[firstDelivery].Push(young)
	l.refused[firstDelivery].Push(old)
	l.retryRefused()
	ready, refused := &l.ready[firstDelivery], &l.refused[firstDelivery]
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
