package redelivertest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// The answers to a batch with two messages of one key are those of internal/adaptertest/batchkeytable.md, to which
// docs/reference/batching.md links.
func TestBatchPrecedenceOfOneKey(t *testing.T) {
	for _, row := range adaptertest.BatchKeyRows(t) {
		for _, order := range []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderThroughRetries, redeliver.OrderBlocking} {
			t.Run(fmt.Sprintf("%s and %s, %s", row.Calls, row.Returns, order), func(t *testing.T) { precedenceOfOneKey(t, row, order) })
		}
	}
}

func precedenceOfOneKey(t *testing.T, row adaptertest.BatchKeyRow, order redeliver.Order) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		const wait = 20 * time.Second
		policy := redeliver.Policy{Order: order, Backoff: redeliver.Fixed(wait), Outage: redeliver.Outage{Off: true}}
		var calls atomic.Int64
		var ran sync.Map // the attempts of the second message
		documents := b.Open(redelivertest.Config{Group: "search", Policy: policy}).Handle("documents", must(middleware.Batch(
			redeliver.BatchConfig{Size: 2, Timeout: time.Second}, func(ctx context.Context, mb *middleware.MessageBatch) error {
				call := calls.Add(1)
				for _, m := range mb.Messages {
					if m.Record.UUID == "m2" {
						ran.Store(call, m.State().Attempt())
					}
				}
				switch {
				case call == 1 && len(mb.Messages) == 2:
					return row.Run(ctx, t, adaptertest.BatchOf(mb), nil)
				case row.Returns == "`Permanent`" && len(mb.Messages) == 1: // alone, the error is its own
					return redeliver.Permanent(errAway)
				default:
					return nil
				}
			})))
		for _, id := range []string{"m1", "m2"} {
			msg := message.NewMessage(id, nil)
			redelivertest.SetKey(msg, "key")
			b.Publish("documents", msg)
		}
		b.Wait()
		want := [2]string{row.First, row.Overtakes}
		if order != redeliver.OrderFirstAttempts {
			want[1] = row.InPlace
		}
		for i, want := range want {
			got := documents.Outcome(fmt.Sprint("m", i+1))
			reported := outcomeOfKey(got, wait)
			if i == 1 && reported == "ack" {
				runs := 0
				ran.Range(func(_, attempt any) bool {
					if runs++; attempt != 1 {
						t.Errorf("it ran as attempt %v", attempt)
					}
					return true
				})
				if runs > 1 {
					reported = "again, uncounted"
				}
			}
			if reported != want {
				t.Errorf("message %d: %s, want %s\n%s", i+1, reported, want, got)
			}
		}
	})
}

// outcomeOfKey describes the outcome of a message, all of whose retries succeed.
func outcomeOfKey(o redelivertest.Outcome, wait time.Duration) string {
	switch {
	case o.State.Reason != "":
		return "DLQ, " + string(o.State.Reason)
	case len(o.Waits) == 1 && o.Waits[0].Delay == wait && o.State.Attempts == 1 && o.Committed:
		return "retry, as the policy says"
	case len(o.Waits) == 0 && o.State.Attempts == 0 && o.Committed:
		return "ack"
	default:
		return fmt.Sprintf("%d waits, %d failed attempts", len(o.Waits), o.State.Attempts)
	}
}

// A batch of n messages takes n from the rate, also if it is larger than the burst. No message starves, not even one of a key that
// has few.
func TestBatchesKeepTheRate(t *testing.T) {
	const perSecond, n = 10, 120
	for _, c := range []struct{ size, burst, concurrency int }{{1, 5, 1}, {5, 5, 1}, {4, 10, 3}, {20, 5, 1}, {20, 5, 2}, {20, 1, 1}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				policy := redeliver.Policy{Rate: redeliver.Rate{PerSecond: perSecond, Burst: c.burst}, Backoff: redeliver.Fixed(time.Second), Outage: redeliver.Outage{Off: true}}
				var mu sync.Mutex
				var begun []time.Duration
				first := make(map[string]time.Duration) // when each message first ran
				start := time.Now()
				config := redeliver.BatchConfig{Size: c.size, Timeout: 10 * time.Second, Concurrency: c.concurrency}
				documents := b.Open(redelivertest.Config{Group: "search", Policy: policy}).Handle("documents", must(middleware.Batch(config, func(_ context.Context, mb *middleware.MessageBatch) error {
					mu.Lock()
					defer mu.Unlock()
					for _, m := range mb.Messages {
						at := time.Since(start)
						begun = append(begun, at)
						if _, again := first[m.Record.UUID]; !again {
							first[m.Record.UUID] = at
						}
						if m.Record.UUID == "003" && m.State().Attempt() == 1 {
							m.Retry()
						}
					}
					return nil
				})))
				for i := range n {
					msg := message.NewMessage(fmt.Sprintf("%03d", i), nil)
					redelivertest.SetKey(msg, map[bool]string{true: "rare", false: "often"}[i%10 == 9])
					b.Publish("documents", msg)
				}
				b.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(begun) != n+1 {
					t.Fatalf("%d runs, want %d and a retry", len(begun), n)
				}
				for i, at := range begun {
					if most := float64(c.burst) + perSecond*at.Seconds(); float64(i+1) > most+1e-6 {
						t.Errorf("%d messages have begun after %s, want at most %.1f", i+1, at, most)
						break
					}
				}
				// The rate is used: the last message begins when its turn comes, or with a batch that waits for its last messages.
				if last, late := begun[len(begun)-1], time.Duration(n+1)*time.Second/perSecond+config.Timeout+2*time.Second; last > late {
					t.Errorf("the last one began after %s, want at most %s", last, late)
				}
				for i := range n {
					if got := documents.Outcome(fmt.Sprintf("%03d", i)); !got.Committed {
						t.Errorf("it has not run: %s", got)
					}
				}
			})
		})
	}
}
