package kafka_test

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// large is more than the level of 100 ms accepts, and less than the DLQ and the level of 3 s of an older policy do.
const large = 1_500_000

// createLevels creates the levels of 100 ms and 3 s.
func createLevels(t *testing.T, p fixture) {
	t.Helper()
	adm := kadm.NewClient(independent(t, p.addrs))
	for level, maxBytes := range map[time.Duration]int{100 * time.Millisecond: 1_200_000, 3 * time.Second: 3_000_000} {
		forever, size := "-1", strconv.Itoa(maxBytes)
		kafkatest.MakeTopic(t, adm, 4, map[string]*string{"retention.ms": &forever, "max.message.bytes": &size}, kafka.DelayTopicName(p.topic, p.group, level))
	}
}

// putLarge is put for large records. It reports whether the broker accepted them.
func putLarge(t *testing.T, addrs []string, recs ...*kgo.Record) error {
	t.Helper()
	cl := independent(t, addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(3_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	return cl.ProduceSync(t.Context(), recs...).FirstErr()
}

func isDeadLettered(id string) func(redeliver.Event) bool {
	return func(e redeliver.Event) bool {
		d, ok := e.(redeliver.DeadLettered)
		return ok && d.State.ID == id
	}
}

// wantDeadLetter checks a message in the DLQ.
func wantDeadLetter(t *testing.T, p fixture, ev *events, value []byte, id string, attempts int) {
	t.Helper()
	d, _ := ev.await(t, 1, isDeadLettered(id))[0].(redeliver.DeadLettered)
	if d.State.Reason != redeliver.ReasonUnschedulable || d.State.Attempts != attempts || d.Where != p.ours("dlq") || d.State.Error == "" {
		t.Errorf("dead-lettered in %s as %+v, want it unschedulable after %d attempts", d.Where, d.State, attempts)
	}
	rec := read(t, p.addrs, p.ours("dlq"), 1)[0]
	if _, ours := splitBlock(rec.Headers); !bytes.Equal(rec.Value, value) || ours[redeliver.HeaderReason] != string(redeliver.ReasonUnschedulable) || ours[redeliver.HeaderID] != id {
		t.Errorf("the DLQ has %d bytes with %v", len(rec.Value), ours)
	}
	for _, f := range all[redeliver.PublishFailed](ev) {
		t.Errorf("writing to %s was to be tried again: %v", f.Where, f.Err)
	}
}

// If a level refuses a message, the message is dead-lettered and its record on the last level is committed. Later
// messages of its key run.
func TestOnKafkaARefusedHopIsDeadLettered(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]redeliver.Policy{"keys in order": quick(1), "keys that wait": perKeyPolicy(100 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			p := onKafka(t)
			createLevels(t, p)
			var mu sync.Mutex
			var ran []string
			ev, _ := consume(t, p, kafka.Config{Policy: policy}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, string(rec.Key)+string(rec.Value[:min(6, len(rec.Value))]))
				return nil
			})
			at := time.Now().Truncate(time.Millisecond)
			first := leftOnLevel(p, 3*time.Second, "key", "first", 0, 1, 100*24*time.Hour, at)
			first.Value = randomBytes(1, large)
			first.Timestamp = at.Add(-time.Hour) // its level is over
			if err := putLarge(t, p.addrs, first); err != nil {
				t.Fatal(err)
			}
			wantDeadLetter(t, p, ev, first.Value, "first", 1)
			eventually(t, "its offset is committed", func() bool {
				return unacked(t, p.addrs, p.group, kafka.DelayTopicName(p.topic, p.group, 3*time.Second), 0) == 1
			})
			if policy.Order != redeliver.OrderThroughRetries {
				return
			}
			// A kill left it on the origin, too.
			again := keyed(p, "key", "first")
			again.Timestamp = at
			put(t, p.addrs, again, keyed(p, "key", "second"))
			ev.awaitEnds(t, "second")
			eventually(t, "the origin is committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 2 })
			mu.Lock()
			defer mu.Unlock()
			if len(ran) != 1 || ran[0] != "keysecond" {
				t.Errorf("ran %q, want only the second", ran)
			}
		})
	}
}

// A message that must wait behind one of its key is dead-lettered without an attempt.
func TestOnKafkaARefusedParkedMessageIsDeadLettered(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	createLevels(t, p)
	ev, _ := consume(t, p, kafka.Config{Policy: perKeyPolicy(100 * time.Millisecond)}, func(context.Context, *sarama.ConsumerMessage) error { return nil })
	at := time.Now().Truncate(time.Millisecond)
	put(t, p.addrs, leftOnLevel(p, 3*time.Second, "key", "first", 0, 1, 100*24*time.Hour, at))
	ev.await(t, 1, is[redeliver.Hopped])
	alterSetting(t, p, "max.message.bytes", "2000000", p.topic)
	again := keyed(p, "key", "first")
	again.Timestamp = at
	second := keyed(p, "key", "second")
	second.Value = randomBytes(2, large)
	put(t, p.addrs, again)
	eventually(t, "the origin accepts it", func() bool { return putLarge(t, p.addrs, second) == nil })
	put(t, p.addrs, keyed(p, "key", "third"), keyed(p, "another key", "other"))
	wantDeadLetter(t, p, ev, second.Value, "second", 0)
	ev.awaitEnds(t, "other")
	eventually(t, "the origin is committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 4 })
	if n := len(all[redeliver.Attempted](ev)); n != 1 {
		t.Errorf("%d attempts were made, want that of the other key", n)
	}
}
