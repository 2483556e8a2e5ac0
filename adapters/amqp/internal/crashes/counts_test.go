package crashes

import "testing"

// A failed try to write a crash count may have succeeded, so the next try must not add another. Lost connections once
// sent a message that had killed no process to the DLQ.
func TestChargeIsWrittenOnce(t *testing.T) {
	var c Charge
	for _, row := range []struct{ noted, want int }{{1, 2}, {2, 2}, {1, 2}, {3, 3}} { // the first try; it had succeeded; it had not; another process has added one
		if got := c.Add(row.noted); got != row.want {
			t.Errorf("after %d crashes the count is %d, want %d", row.noted, got, row.want)
		}
	}
	if c.Before != 1 {
		t.Errorf("the message had %d crashes at first, want 1", c.Before)
	}
}

func TestChargeIsRemovedOnce(t *testing.T) {
	c := Charge{Before: 1, known: true}
	for _, row := range []struct{ noted, want int }{{2, 1}, {1, 1}, {3, 2}, {0, 0}} { // the first try; it had succeeded; another process has charged it; another process has settled it
		if got := c.Remove(row.noted); got != row.want {
			t.Errorf("of %d crashes %d remain, want %d", row.noted, got, row.want)
		}
	}
}
