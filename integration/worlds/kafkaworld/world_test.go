//go:build worlds

package kafkaworld

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rcrowley/go-metrics"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// TestWorld runs one world. The command worlds starts this program once for each: sarama keeps timers and channels in
// variables of its package, which a second bubble must not use.
func TestWorld(t *testing.T) {
	metrics.UseNilMetrics = true // its goroutine would begin inside the bubble
	live.TestWorld(t, Vocabulary, func(w plan.World, say func(string)) (live.Driver, func(), error) {
		d, err := Start(w, say)
		if err != nil {
			return nil, nil, err
		}
		return d, func() {
			d.Close()
			time.Sleep(2 * time.Minute) // sarama's goroutines end
		}, nil
	}, synctest.Test)
}
