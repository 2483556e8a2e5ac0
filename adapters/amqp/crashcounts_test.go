package amqp

import "testing"

// A failed try to write a crash count may have succeeded, so the next try must not add another. Lost connections once
// sent a message that had killed no process to the DLQ.
func TestChargeIsWrittenOnce(t *testing.T) {
	var c crashCharge
	for _, row := range []struct{ noted, want int }{{1, 2}, {2, 2}, {1, 2}, {3, 3}} { // the first try; it had succeeded; it had not; another process has added one
		if got := c.add(row.noted); got != row.want {
			t.Errorf("after %d crashes the count is %d, want %d", row.noted, got, row.want)
		}
	}
	if c.crashesBefore != 1 {
		t.Errorf("the message had %d crashes at first, want 1", c.crashesBefore)
	}
}

func TestChargeIsRemovedOnce(t *testing.T) {
	c := crashCharge{crashesBefore: 1, known: true}
	for _, row := range []struct{ noted, want int }{{2, 1}, {1, 1}, {3, 2}, {0, 0}} { // the first try; it had succeeded; another process has charged it; another process has settled it
		if got := c.remove(row.noted); got != row.want {
			t.Errorf("of %d crashes %d remain, want %d", row.noted, got, row.want)
		}
	}
}
