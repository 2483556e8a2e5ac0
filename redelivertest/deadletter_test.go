package redelivertest

import (
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

func TestDeadLetterQueue(t *testing.T) {
	adaptertest.RunDeadLetters(deadKit(t))
}

func TestDeadLetterKills(t *testing.T) {
	adaptertest.RunDeadLetterKills(deadKit(t))
}

func deadKit(t *testing.T) (*testing.T, adaptertest.Harness, adaptertest.DeadLetters) {
	h := &harness{brokers: make(map[string]*Broker)}
	kit := newHarnessOf(h)
	kit.Wrap = synctest.Test
	return t, kit, func(_ testing.TB, origin, group string) (deadletter.Queue, func()) {
		b := h.broker(origin)
		b.mu.Lock()
		q := (&Subscription{b.queueLocked(origin, group)}).DeadLetterQueue()
		b.mu.Unlock()
		return q, func() { _ = q.Close() }
	}
}

// A rate is exact, and a paused task can be cancelled.
func TestAReplayKeepsItsRateAndMayBeCancelled(t *testing.T) {
	Run(t, func(t *testing.T, b *Broker) {
		billing := b.Open(Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		fixed := false
		orders := billing.Handle("orders", func(*message.Message) error {
			if fixed {
				return nil
			}
			return errors.New("card declined")
		})
		for range 40 {
			b.Publish("orders", message.NewMessage(rand.Text(), nil))
		}
		if n := len(orders.DeadLetters()); n != 40 {
			t.Fatalf("%d dead letters", n)
		}
		fixed = true
		q, began := orders.DeadLetterQueue(), time.Now()
		r := deadletter.ReplayOptions{Who: "ann", Why: "test", Rate: 8, Filter: deadletter.Filter{Positions: []deadletter.Position{"0", "1", "2", "3", "4", "5", "6", "7"}}}
		task, err := deadletter.Replay(t.Context(), q, r)
		if took := time.Since(began); err != nil || task.Counts.Replayed != 8 || took != 750*time.Millisecond {
			t.Errorf("%d of 8 messages at 8 a second, two at a time, took %s: %v", task.Counts.Replayed, took, err)
		}
		r.Filter = deadletter.Filter{}
		r.Report.Progress = func(now deadletter.Task) {
			if now.Counts.Replayed == 4 {
				if err := deadletter.Pause(t.Context(), q, now.ID); err != nil {
					t.Error(err)
				}
			}
		}
		if task, err = deadletter.Replay(t.Context(), q, r); err != nil || task.Status != deadletter.StatusPaused || len(orders.DeadLetters()) != 32-int(task.Counts.Replayed) {
			t.Fatalf("%s after %d: %v", task.Status, task.Counts.Replayed, err)
		}
		if err := deadletter.Cancel(t.Context(), q, task.ID, deadletter.CancelOptions{Who: "ann"}); err != nil {
			t.Fatal(err)
		}
		if now, err := deadletter.Lookup(t.Context(), q, task.ID); err != nil || now.Status != deadletter.StatusCancelled || now.Ended.IsZero() {
			t.Errorf("the task is %s: %v", now.Status, err)
		}
		if _, err := deadletter.Resume(t.Context(), q, task.ID, deadletter.ResumeOptions{Who: "ann"}); err == nil {
			t.Error("a cancelled task was resumed")
		}
		if _, _, err := q.Holder(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
