package amqp

import "testing"

// A try to note a crash that fails may have noted it. The next try does not add another: lost connections sent a message that
// had killed nobody to the DLQ.
func TestAChargeIsNotedOnce(t *testing.T) {
	var c charge
	for _, row := range []struct{ noted, want int }{{1, 2}, {2, 2}, {1, 2}, {3, 3}} { // at first; it was noted; it was not; another process has noted one
		if got := c.add(row.noted); got != row.want {
			t.Errorf("after %d crashes %d are noted, want %d", row.noted, got, row.want)
		}
	}
	if c.before != 1 {
		t.Errorf("the message had %d crashes before, want 1", c.before)
	}
}

func TestAChargeIsTakenBackOnce(t *testing.T) {
	p := &inPlace{before: 1}
	for _, row := range []struct{ noted, want int }{{2, 1}, {1, 1}, {3, 2}, {0, 0}} { // at first; it was taken back; another process has charged it; and has settled it
		if got := p.acquitted(row.noted); got != row.want {
			t.Errorf("of %d crashes %d are left, want %d", row.noted, got, row.want)
		}
	}
}
