package kafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// unusualRecords returns records that a map of strings cannot represent.
func unusualRecords(topic, group string) []*kgo.Record {
	born := time.UnixMilli(1_600_000_000_123)
	binary := []byte{0, 0xff, 0xfe, 'x', 0}
	return []*kgo.Record{
		{Topic: topic, Partition: 0, Timestamp: born, Key: nil, Value: nil},
		{Topic: topic, Partition: 0, Timestamp: born, Key: []byte{}, Value: []byte{}},
		{Topic: topic, Partition: 1, Timestamp: born, Key: binary, Value: binary},
		{Topic: topic, Partition: 2, Timestamp: born, Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "z", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "z", Value: []byte("3")},
			{Key: "binary", Value: binary}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")},
		}},
		// A service that copies headers.
		{Topic: topic, Partition: 3, Timestamp: born, Key: []byte("copied"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "mine", Value: []byte("1")}, {Key: redeliver.HeaderAttempt, Value: []byte("77")}, {Key: redeliver.HeaderGroup, Value: []byte(group)},
			{Key: redeliver.HeaderDue, Value: []byte("9999-01-01T00:00:00Z")}, {Key: redeliver.HeaderReason, Value: []byte("exhausted")}, {Key: "last", Value: []byte("2")},
		}},
	}
}

// recordPicture formats all parts of a record. It distinguishes nil from empty.
func recordPicture(key, value []byte, headers []kgo.RecordHeader) string {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("key %s value %s headers %s", show(key), show(value), text(headers))
}

func consumedPicture(rec *sarama.ConsumerMessage) string {
	var hs []kgo.RecordHeader
	for _, h := range rec.Headers {
		hs = append(hs, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
	}
	return fmt.Sprintf("%s/%d/%d@%d %s", rec.Topic, rec.Partition, rec.Offset, rec.Timestamp.UnixMilli(), recordPicture(rec.Key, rec.Value, hs))
}

// seenAttempt is what a handler saw in one attempt.
type seenAttempt struct {
	record   string // consumedPicture
	payload  message.Payload
	metadata message.Metadata
}

// wantSameAttempts checks that a record had three attempts, and that each saw it as it is in its origin.
func wantSameAttempts(t *testing.T, id string, rec *kgo.Record, attempts []seenAttempt) {
	t.Helper()
	if len(attempts) != 3 {
		t.Errorf("%s had %d attempts, want 3", id, len(attempts))
	}
	want := fmt.Sprintf("%s %s", id, recordPicture(rec.Key, rec.Value, rec.Headers))
	for i, got := range attempts {
		if got.record != want {
			t.Errorf("attempt %d saw\n%s, want\n%s", i+1, got.record, want)
		}
		if !bytes.Equal(got.payload, rec.Value) || (got.payload == nil) != (rec.Value == nil) {
			t.Errorf("attempt %d of %s got payload %q, want %q", i+1, id, got.payload, rec.Value)
		}
		if !maps.Equal(got.metadata, attempts[0].metadata) || len(got.metadata["new"]) > 0 {
			t.Errorf("attempt %d of %s got metadata %v, the first %v", i+1, id, got.metadata, attempts[0].metadata)
		}
		for name := range got.metadata {
			if strings.HasPrefix(name, redeliver.HeaderPrefix) && string(rec.Key) != "copied" {
				t.Errorf("attempt %d of %s gets redeliver's header %s", i+1, id, name)
			}
		}
	}
}

// wantCopy checks that a record on a topic of redeliver's is an unchanged copy of one of the originals.
func wantCopy(t *testing.T, p fixture, rec *kgo.Record, originals map[string]*kgo.Record) {
	t.Helper()
	users, ours := splitBlock(rec.Headers)
	place := ours[redeliver.HeaderOrigin] + "/" + ours[redeliver.HeaderOriginPartition] + "/" + ours[redeliver.HeaderOriginOffset]
	from := originals[ours[redeliver.HeaderID]]
	if from == nil || !strings.HasPrefix(ours[redeliver.HeaderID], place+"@") || ours[redeliver.HeaderGroup] != p.group {
		t.Fatalf("a record on %s says that it is %q from %q: %s", rec.Topic, ours[redeliver.HeaderID], place, text(rec.Headers))
	}
	if got, was := recordPicture(rec.Key, rec.Value, users), recordPicture(from.Key, from.Value, from.Headers); got != was {
		t.Errorf("%s has %s\nfor %s", rec.Topic, got, was)
	}
	if at := ours[redeliver.HeaderOriginTimestamp]; at != from.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z07:00") {
		t.Errorf("%s: origin's timestamp %s, want %s", rec.Topic, at, from.Timestamp.UTC())
	}
	if rec.Partition != from.Partition {
		t.Errorf("%s: on partition %d, its origin was %d", rec.Topic, rec.Partition, from.Partition)
	}
}

func TestOnKafkaARecordIsUnchangedByLevelsHopsAndTheDLQ(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	addrs := p.addrs
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: p.group, Policy: redeliver.Policy{
		MaxRetries: 2, Backoff: redeliver.Steps(100*time.Millisecond, 2*time.Second), Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
	}})
	originals := unusualRecords(p.topic, p.group)
	begin := time.Now()
	put(t, addrs, originals...)
	want := make(map[string]*kgo.Record) // by place and timestamp, which are the id of a record without a UUID
	for _, rec := range originals {
		want[fmt.Sprintf("%s/%d/%d@%d", p.topic, rec.Partition, rec.Offset, rec.Timestamp.UnixMilli())] = rec
	}
	var mu sync.Mutex
	seen := make(map[string][]seenAttempt)
	route(t, c, p.topic, func(msg *message.Message) error {
		rec := kafka.RecordFromContext(msg.Context())
		mu.Lock()
		seen[msg.UUID] = append(seen[msg.UUID], seenAttempt{consumedPicture(rec), slices.Clone(msg.Payload), maps.Clone(msg.Metadata)})
		mu.Unlock()
		// A handler's changes to its message must not be retried.
		for i := range msg.Payload {
			msg.Payload[i] = '!'
		}
		msg.Payload = append(msg.Payload, "more"...)
		msg.Metadata.Set("z", "changed")
		msg.Metadata.Set("new", "header")
		return errDeclined
	})
	ev.await(t, len(originals), is[redeliver.DeadLettered])
	mu.Lock()
	defer mu.Unlock()
	for id, rec := range want {
		wantSameAttempts(t, id, rec, seen[id])
	}
	written := 0
	for topic, minCount := range map[string]int{ // a late write goes to a lower level, or needs none
		p.ours("retry"): 0, p.ours("retry.100ms"): 0, p.ours("retry.300ms"): len(originals), p.ours("dlq"): len(originals),
	} {
		n := max(minCount, int(count(t, addrs, topic)))
		written += n
		for _, rec := range read(t, addrs, topic, n) {
			wantCopy(t, p, rec, want)
			if rec.Timestamp.Before(begin.Truncate(time.Millisecond)) || rec.Timestamp.After(time.Now()) {
				t.Errorf("%s: timestamp %s is not the time of the write", topic, rec.Timestamp)
			}
		}
	}
	if hopped := len(all[redeliver.Hopped](ev)); hopped == 0 || written != 3*len(originals)+hopped {
		t.Errorf("%d records were written, want three for each of %d and %d hops, of which there must be some", written, len(originals), hopped)
	}
	for _, rec := range read(t, addrs, p.ours("dlq"), len(originals)) {
		_, ours := splitBlock(rec.Headers)
		if ours[redeliver.HeaderReason] != "exhausted" || ours[redeliver.HeaderAttempt] != "3" || ours[redeliver.HeaderError] != errDeclined.Error() || ours[redeliver.HeaderFirstFailed] == "" {
			t.Errorf("dead-lettered as %v", ours)
		}
	}
	if n := len(all[redeliver.HeadersIgnored](ev)); n != 1 {
		t.Errorf("%d records with untrusted headers, want the one that copied them, once", n)
	}
}

// broken refuses records in all ways that a marshaler can.
type broken struct{ kafka.DefaultMarshaler }

func (b broken) Unmarshal(rec *sarama.ConsumerMessage) (*message.Message, error) {
	switch {
	case bytes.HasPrefix(rec.Value, []byte("error")):
		return nil, errors.New("no such schema")
	case bytes.HasPrefix(rec.Value, []byte("panic")):
		panic("index out of range")
	case bytes.HasPrefix(rec.Value, []byte("nothing")):
		return nil, nil
	}
	return b.DefaultMarshaler.Unmarshal(rec)
}

func (b broken) Marshal(string, *message.Message) (*sarama.ProducerMessage, error) { return nil, nil }

func TestAMarshalerWithoutARecordIsAnError(t *testing.T) {
	t.Parallel()
	c, _ := openClient(t, kafka.Config{Brokers: fake(t, "orders").ListenAddrs(), Group: "billing", Marshaler: broken{}})
	if err := c.Publisher().Publish("orders", message.NewMessage("1", nil)); err == nil || !strings.Contains(err.Error(), "no record") {
		t.Errorf("published: %v", err)
	}
}

func TestOnKafkaAnUndecodableRecordIsDeadLetteredUnchanged(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	addrs := p.addrs
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(2), Marshaler: broken{}})
	route(t, c, p.topic, func(msg *message.Message) error {
		if string(msg.Payload) != "fine" {
			t.Errorf("the handler got %q", msg.Payload)
		}
		return nil
	})
	hs := []kgo.RecordHeader{{Key: "a", Value: []byte{0xff}}, {Key: "a", Value: nil}}
	var bad []*kgo.Record
	for _, how := range []string{"error", "panic", "nothing"} {
		// They share a key with later records.
		bad = append(bad, &kgo.Record{Topic: p.topic, Key: []byte("k"), Value: []byte(how + "\x00\xff"), Headers: hs})
	}
	put(t, addrs, append(bad, &kgo.Record{Topic: p.topic, Key: []byte("k"), Value: []byte("fine")})...)
	ev.await(t, 1, is[redeliver.Committed])
	ev.await(t, 3, is[redeliver.DeadLettered])
	got := read(t, addrs, p.ours("dlq"), 3)
	for i, rec := range got {
		users, ours := splitBlock(rec.Headers)
		if ours[redeliver.HeaderReason] != "undecodable" || ours[redeliver.HeaderAttempt] != "0" || ours[redeliver.HeaderError] == "" {
			t.Errorf("dead-lettered as %v", ours)
		}
		found := slices.ContainsFunc(bad, func(b *kgo.Record) bool {
			return recordPicture(b.Key, b.Value, b.Headers) == recordPicture(rec.Key, rec.Value, users)
		})
		if !found {
			t.Errorf("record %d of the DLQ is %s", i, recordPicture(rec.Key, rec.Value, users))
		}
	}
	eventually(t, "all four are committed", func() bool { return unacked(t, addrs, p.group, p.topic, 0) == 4 })
}
