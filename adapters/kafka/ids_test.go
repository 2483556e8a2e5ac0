package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// A topic that was deleted and created again has other messages at the same offsets. Dedup knows the old ones, and runs the
// new ones.
func TestOnKafkaMessagesOfATopicThatWasCreatedAgainHaveOtherIDs(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	dedup, err := middleware.DedupFor(middleware.DedupConfigOf[*sarama.ConsumerMessage]{TTL: time.Hour, Skipped: func(m *sarama.ConsumerMessage) {
		t.Errorf("%s is taken for an old message", m.Value)
	}})
	if err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(independent(t, p.addrs))
	ids := make(map[string]string) // values, by id
	for _, name := range []string{"old", "new"} {
		var recs []*kgo.Record
		for i := range int32(4) {
			recs = append(recs, &kgo.Record{Topic: p.topic, Value: []byte(name), Partition: i})
		}
		put(t, p.addrs, recs...)
		var mu sync.Mutex
		ran := 0
		_, stop := consume(t, p, kafka.Config{Policy: quick(1)}, dedup(func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			mu.Lock()
			defer mu.Unlock()
			ran++
			st, _ := redeliver.FromContext(ctx)
			if other := ids[st.ID]; other != "" {
				t.Errorf("a %s message has the id %s of an %s one", rec.Value, st.ID, other)
			}
			ids[st.ID] = string(rec.Value)
			return nil
		}))
		eventually(t, "the "+name+" messages have run", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran == 4
		})
		stop()
		if name == "new" {
			break
		}
		kafkatest.DropTopic(t, adm, p.topic)
		kafkatest.MakeTopic(t, adm, 4, nil, p.topic)
	}
}

// The id of a record is the same in every reader: at each attempt, for Watermill too, in the list of what waits, and in the DLQ. A
// message that waits keeps the id in its headers, also one of an older form.
func TestOnKafkaEveryReaderGivesARecordTheSameID(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	adm := kadm.NewClient(independent(t, p.addrs))
	written := time.UnixMilli(1764316800123)
	put(t, p.addrs,
		&kgo.Record{Topic: p.topic, Value: []byte("timed"), Timestamp: written},
		&kgo.Record{Topic: p.topic, Value: []byte("timeless"), Timestamp: time.UnixMilli(-1)},
		&kgo.Record{Topic: p.topic, Value: []byte("named"), Timestamp: written, Headers: []kgo.RecordHeader{{Key: kafka.UUIDHeader, Value: []byte("4711")}}},
	)
	want := map[string]string{
		"timed": p.topic + "/0/0@1764316800123", "timeless": "derived:" + p.topic + "/0/1", "named": "4711", "older": p.topic + "/3/41",
	}
	if p.real { // the in-process Kafka has no such setting
		byBroker := "LogAppendTime"
		if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "message.timestamp.type", Value: &byBroker}}, p.topic); err != nil {
			t.Fatal(err)
		}
		client := independent(t, p.addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		rec, err := client.ProduceSync(t.Context(), &kgo.Record{Topic: p.topic, Value: []byte("appended"), Timestamp: written}).First()
		if err != nil {
			t.Fatal(err)
		}
		read, err := kafkatest.ReadFirst(t.Context(), p.addrs, p.topic, int(rec.Offset)+1)
		if err != nil {
			t.Fatal(err)
		}
		at := read[slices.IndexFunc(read, func(r *kgo.Record) bool { return string(r.Value) == "appended" })].Timestamp
		want["appended"] = fmt.Sprintf("%s/0/%d@%d", p.topic, rec.Offset, at.UnixMilli())
	}
	cfg := p.provision(t, retryAfter(time.Hour))
	older := redeliver.State{
		ID: p.topic + "/3/41", Group: p.group, Origin: p.topic, Attempts: 1, Due: time.Now().Add(time.Hour), FirstFailed: time.Now(), LastFailed: time.Now(),
		Source: redeliver.Source{Known: true, Partition: 3, Offset: 41, Timestamp: written},
	}
	waits := &kgo.Record{Topic: kafka.DelayTopicName(p.topic, p.group, time.Hour), Value: []byte("older")}
	for _, h := range driver.AppendStateHeaders(older, nil) {
		waits.Headers = append(waits.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	put(t, p.addrs, waits)

	check := func(reader, value, id string) {
		if id != want[value] {
			t.Errorf("%s: the id of %s is %q, want %q", reader, value, id, want[value])
		}
	}
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, func(msg *message.Message) error {
		st, _ := redeliver.FromContext(msg.Context())
		check(fmt.Sprintf("attempt %d", st.Attempt()), string(msg.Payload), st.ID)
		check(fmt.Sprintf("the UUID of attempt %d", st.Attempt()), string(msg.Payload), msg.UUID)
		return errDeclined
	})
	ev.await(t, len(want)-1, is[redeliver.RetryScheduled])
	w := p.waiting(t)
	eventually(t, "all wait", func() bool { return waitingCount(t, w) == int64(len(want)) })
	listed := 0
	for m, err := range w.Browse(t.Context(), deadletter.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		check("waiting", string(m.Body), m.ID)
		listed++
	}
	if listed != len(want) {
		t.Fatalf("%d messages are listed, want %d", listed, len(want))
	}
	sendCommand(t, w, release())
	ev.await(t, len(want), is[redeliver.DeadLettered])
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	dead := 0
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		check("the DLQ", string(m.Body), m.ID)
		dead++
	}
	if dead != len(want) {
		t.Fatalf("%d messages are in the DLQ, want %d", dead, len(want))
	}
}
