package reader

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A record makes no allocations of its own between lane, batch and mark. Allocations of a batch of a hundred are fewer
// than one per three records. The clock is stopped, because records that wait long for their batch are watched, which
// allocates.
func TestConsumeBatchAllocatesOnlyForTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 20_000, 100
		r := offlineReader(nil)
		r.Sub.MaxInFlight, r.Sub.MaxRetriesInFlight = 2*size, 2*size
		handled, batches := 0, 0
		batch := redeliver.BatchConfig{Size: size, Concurrency: 1, Timeout: time.Minute}
		run := laneOf(t, r, engine.Options[*sarama.ConsumerMessage]{BatchConfig: batch, Batch: func(_ *engine.Batch, all []*engine.BatchMember[*sarama.ConsumerMessage]) error {
			for i, m := range all {
				if i%2 == 0 && !m.Answer(nil) { // the others are done at the end
					t.Error("an ack does not count")
				}
			}
			handled += len(all)
			batches++
			return nil
		}}, n, n)
		if per := testing.AllocsPerRun(1, run) / n; per > 1./3 {
			t.Errorf("%.3f allocations for a record", per)
		}
		// Each record has its own key, so every batch is full. With shared keys a slow worker would delay later records
		// of its key, which would then be in other batches.
		if handled != 2*n || batches != 2*n/size {
			t.Errorf("%d records in %d batches", handled, batches)
		}
	})
}
