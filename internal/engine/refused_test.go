package engine

import "testing"

// A lane does not keep an entry that a gater once refused in memory: its record may be large.
func TestALaneKeepsNoRefusedEntry(t *testing.T) {
	l := &lane[int]{}
	l.refused = append(l.refused, &entry[int]{phase: entryRefused}, &entry[int]{phase: entryGone})
	l.retryRefused()
	if l.ready[firstDelivery].Len() != 1 {
		t.Errorf("%d entries are ready, want 1", l.ready[firstDelivery].Len())
	}
	for i, e := range l.refused[:2] {
		if e != nil {
			t.Errorf("entry %d is kept", i)
		}
	}
}
