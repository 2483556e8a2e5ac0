package perkey

import (
	"hash/maphash"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// With a Rate, a message that has expired goes to the DLQ without asking its key.
func TestAnExpiredMessageLeavesItsKeyQueue(t *testing.T) {
	t.Parallel()
	expire := func(t *testing.T, k *Gate, m *message, c *Copy) {
		t.Helper()
		m.Step = driver.StepDeadLetter
		if admission := k.Begin(m, c, false); admission != engine.Begins {
			t.Fatalf("the expired message was answered %v", admission)
		}
		k.Ended(m, c, engine.Ending{Kind: engine.DeadLettered})
	}
	for name, before := range map[string]func(*testing.T, *Gate, *Loader){
		"on a level": func(t *testing.T, k *Gate, _ *Loader) {
			m := &message{Record: &sarama.ConsumerMessage{Key: []byte("K")}}
			st := &redeliver.State{Attempts: 1, Source: redeliver.Source{Known: true}}
			expire(t, k, m, k.PlaceWaiting(m, &delayqueue.Stay{State: st}))
		},
		"on the origin, expected": func(t *testing.T, k *Gate, l *Loader) {
			m := firstOfKey(0)
			l.addExpected(keyOffset{maphash.String(seed, "K"), 0}, 0)
			expire(t, k, m, k.PlaceFirst(m))
		},
		"behind another of its key": func(t *testing.T, k *Gate, _ *Loader) {
			runs, waits := firstOfKey(0), firstOfKey(1)
			first, second := k.PlaceFirst(runs), k.PlaceFirst(waits)
			if a, b := k.Begin(runs, first, false), k.Begin(waits, second, false); a != engine.Begins || b != engine.NotYet {
				t.Fatalf("the two were answered %v and %v", a, b)
			}
			expire(t, k, waits, second)
			k.Ended(runs, first, engine.Ending{Kind: engine.Acked})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := newQueues(new(atomic.Int64))
			l := &Loader{Queues: queues}
			l.clear()
			k := NewGate(Lane{MaxWaiting: 100, Post: func(func()) bool { return true }}, queues)
			before(t, k, l)
			behind := firstOfKey(2)
			c := k.PlaceFirst(behind)
			if admission := k.Begin(behind, c, false); admission != engine.Begins || behind.Step != driver.StepHandle {
				t.Errorf("the message behind it was answered %v, step %v", admission, behind.Step)
			}
			k.Ended(behind, c, engine.Ending{Kind: engine.Acked})
			if n := queues.onLevels.Load(); n != 0 || len(queues.queues) != 0 || len(k.waiting) != 0 {
				t.Errorf("%d are counted on levels, %d keys have a queue, %d copies wait", n, len(queues.queues), len(k.waiting))
			}
		})
	}
}

// firstOfKey returns a record of one key on the origin.
func firstOfKey(offset int64) *message {
	return &message{Record: &sarama.ConsumerMessage{Key: []byte("K"), Offset: offset}}
}
