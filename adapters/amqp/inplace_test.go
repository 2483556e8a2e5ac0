package amqp

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

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
	p := &inPlaceTurn{crashesBefore: 1}
	for _, row := range []struct{ noted, want int }{{2, 1}, {1, 1}, {3, 2}, {0, 0}} { // the first try; it had succeeded; another process has charged it; another process has settled it
		if got := p.withoutCharge(row.noted); got != row.want {
			t.Errorf("of %d crashes %d remain, want %d", row.noted, got, row.want)
		}
	}
}

// A suspect begins only when its lane has confirmed its turn. It once began earlier, and the decision about it came
// while it ran.
func TestSuspectBeginsWhenItsLaneIsReady(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, nil)
	s, in := f.source(false, "a1")
	m := parsed(s, in)[0]
	p := &inPlaceTurn{s: s, d: m.Record, state: turnTaken, crashesBefore: f.r.layout.policy.MaxCrashes}
	if p.beginOrSeek() {
		t.Error("it begins before its lane has confirmed the turn")
	}
	p.turnCame()
	if !p.beginOrSeek() || m.Step != driver.Bury {
		t.Errorf("it does not begin when its lane has confirmed the turn, or goes to %v", m.Step)
	}
	s.finishTest()
}
