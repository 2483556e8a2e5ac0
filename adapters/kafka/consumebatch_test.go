package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// consumeBatch calls h for the topic's records until stop is called or the test ends.
func consumeBatch(t *testing.T, p fixture, cfg kafka.Config, bc redeliver.BatchConfig, h kafka.BatchHandler) (ev *events, stop func()) {
	t.Helper()
	ev = newEvents()
	cfg.Group, cfg.Sink, cfg.Policy = p.group, ev, withoutOutages(cfg.Policy)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), valueKey{}, "the caller's"))
	done := make(chan error, 1)
	client := saramaClient(t, p.addrs)
	go func() { done <- kafka.ConsumeBatch(ctx, client, cfg, []string{p.topic}, bc, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	ev.awaitJoined(t, 1)
	return ev, stop
}

type valueKey struct{} // of a value in the context of consumeBatch

// Each record of a batch has its own answer, attempts and end, and is the same in every attempt.
func TestOnKafkaConsumeBatchAppliesEachAnswer(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	var mu sync.Mutex
	runs := make(map[string][]int)
	seen := make(map[string]string) // a record as its first attempt saw it
	largest := 0
	handle := func(ctx context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := ctx.Deadline(); !ok || ctx.Value(valueKey{}) != "the caller's" || b.Origin != p.topic || b.Group != p.group {
			t.Errorf("a batch of %s for %s, with a deadline %t and %v", b.Origin, b.Group, ok, ctx.Value(valueKey{}))
		}
		largest = max(largest, len(b.Messages))
		for _, m := range b.Messages {
			id, st := string(m.Record.Key), m.State()
			in, ok := redeliver.FromContext(m.Context())
			if !ok || in.Attempt() != st.Attempt() || kafka.RecordFromContext(m.Context()) != m.Record {
				t.Errorf("%s: its context has %+v, %v", id, in, kafka.RecordFromContext(m.Context()))
			}
			runs[id] = append(runs[id], st.Attempt())
			if was := seen[id]; was != "" && was != recordText(m.Record) {
				t.Errorf("attempt %d sees %s, the first saw %s", st.Attempt(), recordText(m.Record), was)
			}
			seen[id] = recordText(m.Record)
			switch {
			case id == "acks":
				m.Ack()
			case id == "recovers" && st.Attempt() < 3:
				m.Retry()
			case id == "fails":
				m.Answer(errDeclined)
			case id == "rejects":
				m.Reject("no such card")
			}
		}
		return nil
	}
	ev, stop := consumeBatch(t, p, kafka.Config{Policy: quick(3)}, redeliver.BatchConfig{Size: 5, Timeout: 100 * time.Millisecond}, handle)
	want := map[string]int{"acks": 1, "says nothing": 1, "recovers": 3, "fails": 4, "rejects": 1}
	var ids []string
	var recs []*kgo.Record
	for id := range want {
		rec := order(p.topic, id)
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "trace", Value: []byte{0, 255}}, kgo.RecordHeader{Key: "trace"})
		ids, recs = append(ids, id), append(recs, rec)
	}
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	stop()
	mu.Lock()
	for id, n := range want {
		var all []int
		for i := range n {
			all = append(all, i+1)
		}
		if !slices.Equal(runs[id], all) {
			t.Errorf("%s ran as attempts %v, want %v", id, runs[id], all)
		}
	}
	if largest < 2 {
		t.Errorf("no batch had more than %d", largest)
	}
	mu.Unlock()
	reasons := map[string]redeliver.Reason{}
	for _, d := range all[redeliver.DeadLettered](ev) {
		reasons[d.State.ID] = d.State.Reason
	}
	if got := fmt.Sprint(reasons); got != fmt.Sprint(map[string]redeliver.Reason{"fails": redeliver.ReasonExhausted, "rejects": redeliver.ReasonRejected}) {
		t.Errorf("in the DLQ: %s", got)
	}
	ev.noneEarly(t)
	ev.noFindings(t)
}

func TestConsumeBatchRefusesABadCall(t *testing.T) {
	t.Parallel()
	client := saramaClient(t, fake(t, "orders").ListenAddrs())
	fine := func(context.Context, *kafka.Batch) error { return nil }
	for want, call := range map[string]func() error{
		"handler BatchConfig.Size BatchConfig.Bytes BatchConfig.Concurrency BatchConfig.Timeout": func() error {
			return kafka.ConsumeBatch(t.Context(), client, kafka.Config{Group: "billing"}, []string{"orders"}, redeliver.BatchConfig{Size: -1, Bytes: -1, Concurrency: -1, Timeout: -5}, nil)
		},
		"BatchConfig.Size": func() error { // above the default MaxInFlight
			return kafka.ConsumeBatch(t.Context(), client, kafka.Config{Group: "billing"}, []string{"orders"}, redeliver.BatchConfig{Size: kafka.DefaultMaxInFlight + 1}, fine)
		},
		"topics BatchConfig.Size": func() error {
			return kafka.ConsumeBatch(t.Context(), client, kafka.Config{Group: "billing", MaxInFlight: 5}, nil, redeliver.BatchConfig{}, fine)
		},
	} {
		err := call()
		bad, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok || !strings.HasPrefix(err.Error(), "kafka: ") {
			t.Fatalf("%v", err)
		}
		var fields []string
		for _, p := range bad.Problems {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("refused for %q, want %q:\n%v", got, want, err)
		}
	}
}

// Keys and headers count as the values do.
func TestABatchIsBoundedByKeysAndHeaders(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	recs, ids := orders(p.topic, 12)
	for i, rec := range recs {
		if rec.Partition = 1; i%2 == 0 {
			rec.Headers = append(rec.Headers, make([]kgo.RecordHeader, 100)...)
		} else {
			rec.Key = append(rec.Key, make([]byte, 7000)...)
		}
	}
	var mu sync.Mutex
	largest := 0
	ev, _ := consumeBatch(t, p, kafka.Config{}, redeliver.BatchConfig{Size: 12, Bytes: 20_000, Timeout: time.Second}, func(_ context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(b.Messages))
		return nil
	})
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	if mu.Lock(); largest > 3 {
		t.Errorf("a batch has %d messages of 6,500 bytes and more, want at most 20,000 bytes", largest)
	}
	mu.Unlock()
}
