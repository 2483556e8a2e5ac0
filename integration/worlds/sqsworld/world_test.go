//go:build worlds

package sqsworld

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// TestWorld runs one world. The command worlds starts this program once for each.
func TestWorld(t *testing.T) {
	live.TestWorld(t, Vocabulary, func(w plan.World, _ func(string)) (live.Driver, func(), error) {
		d := Start(w)
		return d, func() {
			d.Close()
			time.Sleep(2 * time.Minute) // killed processes end
		}, nil
	}, synctest.Test)
}
