package kafkashare_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

func connect(t *testing.T) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers.RequireKafka(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func awaitTrue(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}

// putWaiting writes a message that has failed once to partition 0 of a topic on which messages wait.
func putWaiting(t *testing.T, cl *kgo.Client, topic string, st redeliver.State) {
	t.Helper()
	st.Attempts, st.Source = 1, redeliver.Source{Known: true}
	rec := &kgo.Record{Topic: topic, Timestamp: st.Due.Add(-time.Hour)}
	for _, header := range driver.AppendStateHeaders(st, nil) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: header.Name, Value: []byte(header.Value)})
	}
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestSettledRecordsOfLevelsAndTheRetryTopicAreDeleted(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	origin, groups := h.Origin(t, 1)
	group := groups[0]
	retry := origin + "." + group + ".retry"
	level := retry + ".1h"
	seen := newEvents()
	s, err := h.Open(t, adaptertest.Config{Origin: origin, Group: group, Sink: seen, Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	handle(t, s, origin)
	adm := kadm.NewClient(connect(t))
	start := func(topic string) int64 {
		starts, err := adm.ListStartOffsets(t.Context(), topic)
		if err = errors.Join(err, starts.Error()); err != nil {
			t.Fatal(err)
		}
		return starts[topic][0].Offset
	}
	putDue := func(id, topic string) {
		putWaiting(t, connect(t), topic, redeliver.State{ID: id, Group: group, Origin: origin, Due: time.Now().Add(-time.Minute)})
		await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == id })
	}
	putDue("first", level)
	putDue("second", retry)
	awaitTrue(t, "the settled records are deleted", func() bool { return start(level) > 0 && start(retry) > 0 })
}
