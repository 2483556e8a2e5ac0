package crashes

import (
	"fmt"
	"testing"
)

// An entry counts until its message is settled. The latest entries are kept, for any number of suspects.
func TestOutlivedCountsUntilSettled(t *testing.T) {
	var o ChannelEnds
	o.Add("a")
	o.Add("a")
	for i := range 2 * maxOutlived {
		o.Add(fmt.Sprint(i))
	}
	if n := o.Of("a"); n != 2 {
		t.Errorf("the count of a is %d, want 2", n)
	}
	if n := len(o.counts); n != maxOutlived {
		t.Errorf("%d are remembered", n)
	}
	o.Settled("a")
	o.Add("recent")
	if o.Of("a") != 0 || o.Of("recent") != 1 {
		t.Errorf("after a was settled, its count is %d, and that of the next suspect %d", o.Of("a"), o.Of("recent"))
	}
}
