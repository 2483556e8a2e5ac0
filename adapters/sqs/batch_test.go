package sqs

import (
	"fmt"
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
			b := newBatcher(linger, workers, 100, func(i int) int { return sizes[i] }, func(batch []int) {
				mu.Lock()
				bytes := 0
				for _, i := range batch {
					bytes += sizes[i]
					if waited := time.Since(added[i]); takes == 0 && waited > 2*linger {
						t.Errorf("item %d waited %s", i, waited)
					}
				}
				if len(batch) == 0 || len(batch) > maxBatch || bytes > 100 && len(batch) > 1 {
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
				b.add(i)
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
			if b.running != 0 || b.collecting {
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

// A user pays for each request: on success and for retries, with many messages at once and with 500 in a second.
func TestRequestsPerMessage(t *testing.T) {
	const n = 1000 // the time of the fake grows with the square of n
	inBubble(t, func(b *bubble) {
		b.create("orders")
		for i := range n {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
		}
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(5 * time.Second)
		b.close(c)
		total := b.count("ReceiveMessage") + b.count("DeleteMessageBatch") + b.count("ChangeMessageVisibilityBatch") + b.count("SendMessageBatch")
		t.Logf("report: %.3f requests for a message that succeeds", float64(total)/n)
		if len(b.ran("")) != n || float64(total)/n > 0.22 {
			t.Errorf("%d requests for %d messages, %d ran: %v", total, n, len(b.ran("")), b.requests)
		}
	})
	inBubble(t, func(b *bubble) {
		b.create("orders")
		b.tick = time.Millisecond
		c := b.start("one", "orders", Config{Policy: steps(3, time.Second), MaxInFlight: 500}, failHandler)
		for i := range n {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
			if i%5 == 0 {
				pass(10 * time.Millisecond)
			}
		}
		b.advance(10 * time.Second)
		b.close(c)
		total := b.count("ReceiveMessage") + b.count("DeleteMessageBatch") + b.count("ChangeMessageVisibilityBatch") + b.count("SendMessageBatch")
		t.Logf("report: %.3f requests for one run of a message that fails, %v", float64(total)/n/4, b.requests)
		if len(b.ran("")) != 4*n || float64(total)/n/4 > 0.45 {
			t.Errorf("%d requests for %d runs: %v", total, len(b.ran("")), b.requests)
		}
	})
}
