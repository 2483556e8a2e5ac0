package engine

import "testing"

// A lane keeps no entry in memory that a gater refused once: it has the record, which may be large.
func TestALaneLetsGoOfWhatWasRefused(t *testing.T) {
	l := &lane[int]{}
	l.refused = append(l.refused, &entry[int]{phase: entryRefused}, &entry[int]{phase: entryGone})
	l.retryRefused()
	if l.ready[firstDelivery].Len() != 1 {
		t.Errorf("%d entries are ready, want the one that is still there", l.ready[firstDelivery].Len())
	}
	for i, e := range l.refused[:2] {
		if e != nil {
			t.Errorf("entry %d is kept", i)
		}
	}
}
