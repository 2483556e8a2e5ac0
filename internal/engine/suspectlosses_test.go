package engine

import (
	"fmt"
	"testing"
)

// An entry counts until its message is settled. When there is no room, the earlier entries stay.
func TestSuspectLossesCountUntilSettled(t *testing.T) {
	var l SuspectLosses
	l.Add("a")
	l.Add("a")
	for i := range 2 * maxLostSuspects {
		l.Add(fmt.Sprint(i))
	}
	if n := l.Count("a"); n != 2 {
		t.Errorf("the count of a is %d, want 2", n)
	}
	if n := len(l.counts); n != maxLostSuspects {
		t.Errorf("%d are remembered", n)
	}
	l.Forget("a")
	l.Add("recent")
	if l.Count("a") != 0 || l.Count("recent") != 1 {
		t.Errorf("after a was settled, its count is %d, and that of the next suspect %d", l.Count("a"), l.Count("recent"))
	}
}
