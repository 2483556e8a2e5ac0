package kafka_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// alterSetting changes a setting of topics, and returns when the brokers report it.
func alterSetting(t *testing.T, p fixture, setting, value string, topics ...string) {
	t.Helper()
	adm := kadm.NewClient(independent(t, p.addrs))
	res, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: setting, Value: &value}}, topics...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	eventually(t, setting+" is "+value, func() bool {
		settings, err := adm.DescribeTopicConfigs(t.Context(), topics...)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range settings {
			if !slices.ContainsFunc(topic.Configs, func(c kadm.Config) bool { return c.Key == setting && c.MaybeValue() == value }) {
				return false
			}
		}
		return true
	})
}

// putHuge writes one record to a topic, as soon as the topic accepts it.
func putHuge(t *testing.T, p fixture, rec *kgo.Record, codec kgo.CompressionCodec) {
	t.Helper()
	cl := independent(t, p.addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(400<<20),
		kgo.BrokerMaxWriteBytes(500<<20), kgo.ProducerBatchCompression(codec), kgo.MaxBufferedBytes(500<<20))
	eventually(t, "a large record is accepted", func() bool { return cl.ProduceSync(t.Context(), rec).FirstErr() == nil })
}

// wantStub checks that a record of the DLQ is a stub: it has only the body's length and hash, and its origin.
func wantStub(t *testing.T, p fixture, rec *kgo.Record, id string, body []byte) {
	t.Helper()
	users, ours := splitBlock(rec.Headers)
	truncated := fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256(body))
	if len(rec.Value) != 0 || len(users) != 0 || string(rec.Key) != id || ours[redeliver.HeaderTruncated] != truncated {
		t.Errorf("a key of %q, a value of %d bytes, headers %s, want a stub of %s with %s", rec.Key, len(rec.Value), text(rec.Headers), id, truncated)
	}
	if ours[redeliver.HeaderReason] != string(redeliver.ReasonUnschedulable) || ours[redeliver.HeaderOrigin] != p.topic ||
		ours[redeliver.HeaderOriginPartition] != "0" || ours[redeliver.HeaderOriginOffset] != "0" || ours[redeliver.HeaderID] != id {
		t.Errorf("the stub does not say why it was written, or where the original is: %v", ours)
	}
}

// A broker accepts no batch larger than a segment, whatever max.message.bytes is. redeliver's smallest segment is 16
// MiB.
func TestOnKafkaARecordAbove16MiBIsRetriedAndDeadLettered(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	alterSetting(t, p, "max.message.bytes", strconv.Itoa(40<<20), p.topic)
	ev, _ := consume(t, p, kafka.Config{Policy: quick(1)}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if len(rec.Value) > 1<<20 {
			return errDeclined
		}
		return nil
	})
	large := order(p.topic, "large")
	large.Value = randomBytes(1, 18<<20)
	putHuge(t, p, large, kgo.NoCompression())
	d, _ := ev.await(t, 1, isDeadLettered("large"))[0].(redeliver.DeadLettered)
	if d.State.Reason != redeliver.ReasonExhausted || d.State.Attempts != 2 || d.State.Truncated != "" {
		t.Errorf("dead-lettered as %+v, want it exhausted after 2 attempts", d.State)
	}
	put(t, p.addrs, order(p.topic, "small"))
	ev.awaitEnds(t, "small")
}

// The stub says where the original message is. Other messages run.
func TestOnKafkaAMessageRefusedByTheDLQBecomesAStub(t *testing.T) {
	t.Parallel()
	for setting, name := range map[string]string{"max.message.bytes": "too large for the topic", "segment.bytes": "too large for a segment"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			if !p.real && setting == "segment.bytes" {
				t.Log("report: kfake has no segments, so the stub is not needed here")
			}
			alterSetting(t, p, "max.message.bytes", strconv.Itoa(8<<20), p.topic)
			ev, _ := consume(t, p, kafka.Config{Policy: quick(1)}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
				if len(rec.Value) > 1<<20 {
					return errDeclined
				}
				return nil
			})
			// The broker applies them in this order.
			alterSetting(t, p, setting, strconv.Itoa(2<<20), p.ours("retry.100ms"), p.ours("retry"), p.ours("dlq"))
			alterSetting(t, p, "max.message.bytes", strconv.Itoa(10<<20), p.topic)
			large := order(p.topic, "large")
			large.Value = randomBytes(1, 9<<20)
			putHuge(t, p, large, kgo.NoCompression())
			next := order(p.topic, "next")
			put(t, p.addrs, next)
			ev.await(t, 1, isDeadLettered("large"))
			ev.awaitEnds(t, "next")
			eventually(t, "both are committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 2 })
			if p.real || setting == "max.message.bytes" {
				wantStub(t, p, read(t, p.addrs, p.ours("dlq"), 1)[0], "large", large.Value)
			}
			for _, f := range all[redeliver.PublishFailed](ev) {
				t.Errorf("writing to %s was to be tried again: %v", f.Where, f.Err)
			}
		})
	}
}

// A record of some kilobytes may be larger, uncompressed, than the client writes. The memory is sarama's, which unpacks
// a whole batch: gzip into a buffer that grows by a quarter at a time.
func TestOnKafkaACompressedRecordTooLargeToWriteBecomesAStub(t *testing.T) {
	t.Run("zstd", func(t *testing.T) { compressedTooLarge(t, kgo.ZstdCompression(), 256<<20) })
	t.Run("gzip", func(t *testing.T) { compressedTooLarge(t, kgo.GzipCompression(), 600<<20) })
}

func compressedTooLarge(t *testing.T, codec kgo.CompressionCodec, maxHeap uint64) {
	p := onKafka(t)
	compressed := order(p.topic, "bomb")
	compressed.Value = make([]byte, 105_000_000)
	putHuge(t, p, compressed, codec)
	peak := peakHeap(t)
	ev, _ := consume(t, p, kafka.Config{Policy: quick(1)}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if len(rec.Value) > 1<<20 {
			return errDeclined
		}
		return nil
	})
	var ids []string
	for i := range 6 {
		rec := order(p.topic, "neighbour-"+strconv.Itoa(i))
		rec.Partition = int32(i % 2)
		put(t, p.addrs, rec)
		ids = append(ids, string(rec.Key))
	}
	ev.awaitEnds(t, ids...)
	ev.await(t, 1, isDeadLettered("bomb"))
	wantStub(t, p, read(t, p.addrs, p.ours("dlq"), 1)[0], "bomb", compressed.Value)
	for _, c := range all[redeliver.SubscriptionChanged](ev) {
		if c.Change == redeliver.ChangeIntakePaused {
			t.Errorf("the others waited: %v", c.Err)
		}
	}
	if n := peak(); n > maxHeap {
		t.Errorf("the heap grew by %d MiB, want at most %d MiB", n>>20, maxHeap>>20)
	}
}

// peakHeap watches the heap. The returned function stops that, and returns the largest growth in bytes.
func peakHeap(t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	done, peak := make(chan struct{}), make(chan uint64, 1)
	go func() {
		largest, ticks := before, time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				metrics.Read(sample)
				largest = max(largest, sample[0].Value.Uint64())
			case <-done:
				peak <- largest - before
				return
			}
		}
	}()
	return func() uint64 { close(done); return <-peak }
}

// A record counts as read ahead, and may pause its partition, only until its handler runs.
func TestALargeRecordDoesNotPauseItsPartitionWhileItsHandlerRuns(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	limit := strconv.Itoa(50 << 20)
	alterSetting(t, p, "max.message.bytes", limit, p.topic)
	release := make(chan struct{})
	ev, _ := consume(t, p, kafka.Config{Policy: quick(1)}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if len(rec.Value) > 1<<20 {
			<-release
		}
		return nil
	})
	defer close(release)
	large := order(p.topic, "large")
	large.Value = make([]byte, 40<<20)
	putHuge(t, p, large, kgo.ZstdCompression())
	for i := range 3 { // records that are fetched with the large one run in any case
		id := fmt.Sprint("next-", i)
		put(t, p.addrs, order(p.topic, id))
		ev.awaitEnds(t, id)
	}
}

// A batch is answered as a whole: a refused record must not send its neighbours to the DLQ.
func TestARefusedRecordDoesNotFailItsBatch(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]*kerr.Error{"invalid": kerr.InvalidRecord, "unknown": kerr.UnknownServerError, "larger than a segment": kerr.RecordListTooLarge} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: p.ours("retry.100ms"), Err: refusal, Count: 1})
			const n = 20
			var together sync.WaitGroup // the first attempts fail at once
			together.Add(n)
			var ran sync.Map
			alterSetting(t, p, "max.message.bytes", strconv.Itoa(8<<20), p.topic)
			ev, _ := consume(t, p, kafka.Config{Policy: quick(1)}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
				if _, again := ran.LoadOrStore(string(rec.Key), true); !again {
					together.Done()
					together.Wait()
				}
				return errDeclined
			})
			recs, ids := orders("orders", n)
			put(t, p.addrs, recs...)
			ev.awaitEnds(t, ids...)
			for _, d := range all[redeliver.DeadLettered](ev) {
				if d.State.Reason != redeliver.ReasonExhausted {
					t.Errorf("%s was dead-lettered as %s: %s", d.State.ID, d.State.Reason, d.State.Error)
				}
			}
			if fault.Hits() != 1 {
				t.Errorf("%d writes were refused, want 1", fault.Hits())
			}
		})
	}
}

// If other writes to the topic succeed, an unknown error concerns one message.
func TestAnUnknownErrorOfOneMessageStopsNoOther(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: p.ours("retry.1m"), Partitions: []int32{1}, Err: kerr.UnknownServerError, Count: -1})
	waits := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Minute}}
	ev, _ := consume(t, p, kafka.Config{Policy: waits}, func(context.Context, *sarama.ConsumerMessage) error { return errDeclined })
	bad := order("orders", "bad")
	bad.Partition = 1
	put(t, p.addrs, bad)
	var over atomic.Bool
	done := make(chan struct{})
	go func() { // neighbours, until the message is settled
		defer close(done)
		cl := independent(t, p.addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := 0; !over.Load(); i++ {
			if err := cl.ProduceSync(context.Background(), order("orders", fmt.Sprint("good-", i))).FirstErr(); err != nil {
				t.Error(err)
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	d, _ := ev.await(t, 1, isDeadLettered("bad"))[0].(redeliver.DeadLettered)
	over.Store(true)
	<-done
	if d.State.Reason != redeliver.ReasonUnschedulable || d.State.Truncated != "" {
		t.Errorf("dead-lettered as %+v", d.State)
	}
	for _, c := range all[redeliver.SubscriptionChanged](ev) {
		if c.Change == redeliver.ChangeIntakePaused {
			t.Errorf("the others waited: %v", c.Err)
		}
	}
}
