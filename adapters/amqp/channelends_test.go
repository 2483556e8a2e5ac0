package amqp

import (
	"fmt"
	"testing"
)

// An entry counts until its message is settled. The latest entries are kept, for any number of suspects.
func TestOutlivedCountsUntilSettled(t *testing.T) {
	var o channelEnds
	o.add("a")
	o.add("a")
	for i := range 2 * maxOutlived {
		o.add(fmt.Sprint(i))
	}
	if n := o.of("a"); n != 2 {
		t.Errorf("the count of a is %d, want 2", n)
	}
	if n := len(o.counts); n != maxOutlived {
		t.Errorf("%d are remembered", n)
	}
	o.settled("a")
	o.add("recent")
	if o.of("a") != 0 || o.of("recent") != 1 {
		t.Errorf("after a was settled, its count is %d, and that of the next suspect %d", o.of("a"), o.of("recent"))
	}
}
