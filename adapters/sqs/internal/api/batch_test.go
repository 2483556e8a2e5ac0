package api

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Every item is in exactly one request. A request has at most ten items and a bounded size, keeps the order if there
// is one worker, and does not wait long if a worker is free.
func TestEveryItemIsInOneBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 60), 1, 60).Draw(rt, "sizes")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 8), len(sizes), len(sizes)).Draw(rt, "pauses")
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		takes := time.Duration(rapid.IntRange(0, 30).Draw(rt, "takes")) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			const linger = 5 * time.Millisecond
			var mu sync.Mutex
			var seen []int
			added := make([]time.Time, len(sizes))
			b := NewBatcher(linger, workers, 100, func(i int) int { return sizes[i] }, func(batch []int) {
				mu.Lock()
				bytes := 0
				for _, i := range batch {
					bytes += sizes[i]
					if waited := time.Since(added[i]); takes == 0 && waited > 2*linger {
						t.Errorf("item %d waited %s", i, waited)
					}
				}
				if len(batch) == 0 || len(batch) > MaxBatch || bytes > 100 && len(batch) > 1 {
					t.Errorf("a request of %d items, %d bytes", len(batch), bytes)
				}
				seen = append(seen, batch...)
				mu.Unlock()
				pass(takes)
			})
			for i := range sizes {
				mu.Lock()
				added[i] = time.Now()
				mu.Unlock()
				b.Add(i)
				pass(time.Duration(pauses[i]) * time.Millisecond)
			}
			pass(time.Minute)
			b.mu.Lock() // the last worker may be about to end
			defer b.mu.Unlock()
			if len(seen) != len(sizes) {
				t.Errorf("%d of %d items were sent", len(seen), len(sizes))
			}
			if workers == 1 {
				for i, item := range seen {
					if i != item {
						t.Fatalf("item %d was sent as number %d", item, i)
					}
				}
			}
			if b.running != 0 || b.timer != nil {
				t.Errorf("%d workers still run", b.running)
			}
		})
	})
}

func pass(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}
