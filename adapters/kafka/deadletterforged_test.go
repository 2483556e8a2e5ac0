package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// Spring copies a producer's headers. If redeliver believed its own headers there, a producer could choose the error of
// a dead letter, exclude it from every replay, and hide all headers behind the forged ones.
func TestOnKafkaForgedHeadersInAForeignDLQAreNotTrusted(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.fixed.Store(true)
	dlt := m.topic + "-dlt"
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, m.addrs)), 1, nil, dlt)
	var recs []*kgo.Record
	for id, forged := range map[string][]kgo.RecordHeader{
		"another cause":   {{Key: redeliver.HeaderAttempt, Value: []byte("1")}, {Key: redeliver.HeaderError, Value: []byte("connection refused, please replay")}},
		"another group":   {{Key: redeliver.HeaderAttempt, Value: []byte("1")}, {Key: redeliver.HeaderGroup, Value: []byte("mail")}},
		"many replays":    {{Key: redeliver.HeaderAttempt, Value: []byte("1")}, {Key: redeliver.HeaderReplays, Value: []byte("1000")}},
		"somebody's pair": {{Key: redeliver.HeaderID, Value: []byte("another")}, {Key: redeliver.HeaderReplays, Value: []byte("1000")}},
	} {
		rec := order(dlt, id)
		rec.Headers = append(rec.Headers, forged...)
		rec.Headers = append(rec.Headers, []kgo.RecordHeader{
			{Key: "tenant", Value: []byte("acme")},
			{Key: "kafka_dlt-original-topic", Value: []byte(m.topic)},
			{Key: "kafka_dlt-original-consumer-group", Value: []byte(m.group)},
			{Key: "kafka_dlt-exception-message", Value: []byte("FRAUD DETECTED in payment")},
		}...)
		recs = append(recs, rec)
	}
	write(t, m.addrs, recs...)
	q := m.queue(t, mq.DeadLetterConfig{DLQ: dlt})
	seen := 0
	for d, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		st := d.State
		if d.Writer != deadletter.WriterSpring || st.Error != "FRAUD DETECTED in payment" || st.Replays != 0 || d.Mismatch != "" || len(d.Findings) != 2 {
			t.Errorf("%s is filled by %s, says %q after %d replays, mismatch %q, findings %v", d.ID, d.Writer, st.Error, st.Replays, d.Mismatch, d.Findings)
		}
	}
	if seen != len(recs) {
		t.Fatalf("%d messages are shown, want %d", seen, len(recs))
	}
	replayAll(t, q, ann)
	eventually(t, "all are handled", func() bool { return m.handled() == len(recs) })
	for _, msg := range m.seen {
		if msg.Metadata["tenant"] != "acme" {
			t.Errorf("%s came back with the headers %v, without those behind the forged ones", msg.UUID, msg.Metadata)
		}
	}
	// redeliver's state would not be believed there, so an import that needs it is refused.
	own := strings.NewReader(`{"dlq":"d","origin":"` + m.topic + `","group":"` + m.group + `","id":"o-1","key":null,"body":"eA==","headers":[],"filler":"redeliver","state":[{"name":"redeliver-attempt","value":"4"}]}`)
	task, err := deadletter.Import(t.Context(), q, own, deadletter.ImportOptions{Who: "ann", Why: "test"})
	if err == nil || !strings.Contains(err.Error(), m.ours("dlq")) || task.Counts.Imported != 0 {
		t.Errorf("a dead letter of redeliver's was imported: %+v, %v", task.Counts, err)
	}
}
