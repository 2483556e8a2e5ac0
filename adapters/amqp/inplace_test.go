package amqp

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// A try to note a crash that fails may have noted it. The next try does not add another: lost connections sent a message that
// had killed nobody to the DLQ.
func TestChargeIsWrittenOnce(t *testing.T) {
	var c crashCharge
	for _, row := range []struct{ noted, want int }{{1, 2}, {2, 2}, {1, 2}, {3, 3}} { // at first; it was noted; it was not; another process has noted one
		if got := c.add(row.noted); got != row.want {
			t.Errorf("after %d crashes %d are noted, want %d", row.noted, got, row.want)
		}
	}
	if c.crashesBefore != 1 {
		t.Errorf("the message had %d crashes before, want 1", c.crashesBefore)
	}
}

func TestChargeIsRemovedOnce(t *testing.T) {
	p := &inPlaceTurn{crashesBefore: 1}
	for _, row := range []struct{ noted, want int }{{2, 1}, {1, 1}, {3, 2}, {0, 0}} { // at first; it was taken back; another process has charged it; and has settled it
		if got := p.withoutCharge(row.noted); got != row.want {
			t.Errorf("of %d crashes %d are left, want %d", row.noted, got, row.want)
		}
	}
}

// A suspect begins when its lane has heard that it has the turn, and not before: it began beside its own turn, and what was
// decided about it came while it ran.
func TestSuspectBeginsWhenItsLaneKnows(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, nil)
	s, in := f.source(false, "a1")
	m := parsed(s, in)[0]
	p := &inPlaceTurn{s: s, d: m.Record, state: turnTaken, crashesBefore: f.r.layout.policy.MaxCrashes}
	if p.beginOrSeek() {
		t.Error("it begins before its lane has heard of its turn")
	}
	p.turnCame()
	if !p.beginOrSeek() || m.Step != driver.Bury {
		t.Errorf("it does not begin when its lane has heard of its turn, or goes to %v", m.Step)
	}
	s.finishTest()
}
