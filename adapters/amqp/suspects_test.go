package amqp

import (
	"fmt"
	"testing"
)

// An entry counts until its message is settled. The latest ones are kept, however many suspects there are.
func TestOutlivedCountsUntilSettled(t *testing.T) {
	var o outlived
	o.add("a")
	o.add("a")
	for i := range 2 * maxOutlived {
		o.add(fmt.Sprint(i))
	}
	if n := o.of("a"); n != 2 {
		t.Errorf("a was outlived %d times, want 2", n)
	}
	if n := len(o.counts); n != maxOutlived {
		t.Errorf("%d are remembered", n)
	}
	o.settled("a")
	o.add("recent")
	if o.of("a") != 0 || o.of("recent") != 1 {
		t.Errorf("settled, a was outlived %d times, and the next one %d times", o.of("a"), o.of("recent"))
	}
}
