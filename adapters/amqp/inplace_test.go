package amqp

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A suspect begins only when its lane has confirmed its turn. It once began earlier, and the decision about it came
// while it ran.
func TestSuspectBeginsWhenItsLaneIsReady(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, nil)
	s, in := f.source(false, "a1")
	m := parsed(s, in)[0]
	p := &inPlaceTurn{s: s, d: m.Record}
	p.state.Store(turnTaken)
	p.charge.Add(f.r.layout.Policy.MaxCrashes)
	if p.beginOrSeek() {
		t.Error("it begins before its lane has confirmed the turn")
	}
	p.turnCame()
	if !p.beginOrSeek() || m.Step != driver.Bury {
		t.Errorf("it does not begin when its lane has confirmed the turn, or goes to %v", m.Step)
	}
	s.finishTest()
}
