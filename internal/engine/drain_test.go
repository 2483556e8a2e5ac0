package engine_test

import (
	"testing"

	"github.com/redeliver/redeliver/internal/engine"
)

func TestDrainingLastsUntilEveryBeginHasEnded(t *testing.T) {
	var d engine.Drain
	if d.Draining() {
		t.Error("the zero Drain is draining")
	}
	reports := 0
	d.Notify(func() {
		if !d.Draining() {
			t.Error("the listener was called before Draining returned true")
		}
		reports++
	})
	d.Begin()
	d.Begin() // two partitions
	d.End()
	if !d.Draining() || reports != 2 {
		t.Errorf("draining %t, reported %d times", d.Draining(), reports)
	}
	d.End()
	if d.Draining() {
		t.Error("still draining")
	}
}
