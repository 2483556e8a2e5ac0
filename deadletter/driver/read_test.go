package driver_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
)

var orders = deadletter.Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing", ReplayTo: "orders.billing.retry"}

func read(headers []deadletter.Header, ours ...msgdriver.Header) *deadletter.Message {
	m := &deadletter.Message{Time: time.Unix(1_700_000_000, 0).UTC(), Headers: headers}
	driver.ReadHeaders(m, orders, ours, func() string { return "made up" })
	return m
}

func TestRedeliversOwnHeadersAreReadAndCompared(t *testing.T) {
	t.Parallel()
	st := redeliver.State{ID: "a", Group: "billing", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonPermanent, Error: "no", Replays: 2}
	m := read(nil, msgdriver.AppendStateHeaders(st, nil)...)
	if m.ID != "a" || m.State.Attempts != 4 || m.State.Replays != 2 || m.Mismatch != "" || m.Writer != deadletter.WriterRedeliver {
		t.Errorf("read as %+v", m)
	}
	for _, other := range []redeliver.State{{Group: "mail", Origin: "orders"}, {Group: "billing", Origin: "refunds"}} {
		if m := read(nil, msgdriver.AppendStateHeaders(other, nil)...); m.Mismatch == "" {
			t.Errorf("headers of group %s and origin %s belong to %+v", other.Group, other.Origin, orders)
		}
	}
	back := driver.ReplayState(m, orders)
	if back.Attempts != 0 || back.Replays != 3 || back.Reason != "" || back.ID != "a" || !back.Due.IsZero() || back.Error != "no" {
		t.Errorf("it is replayed as %+v", back)
	}
}

// Somebody copied a record from a delay topic into a DLQ. It may be another group's.
func TestACopyOfAWaitingMessageIsNotReplayed(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"billing", "mail"} {
		st := redeliver.State{ID: "a", Group: group, Origin: "orders", Attempts: 1}
		_, _, state, _ := msgdriver.AppendWaiting(&st, nil)
		m := read(nil, msgdriver.Header{Name: redeliver.HeaderAttempt, Value: "1"}, msgdriver.Header{Name: redeliver.HeaderState, Value: string(state)})
		if m.Mismatch == "" || m.State.Group != "billing" {
			t.Errorf("the copy of a message of group %s is %+v", group, m)
		}
	}
}

// A handler must not get a message without its body.
func TestAStubIsNotReplayed(t *testing.T) {
	t.Parallel()
	st := redeliver.State{
		ID: "a", Group: "billing", Origin: "orders", Attempts: 1, Reason: redeliver.ReasonUnschedulable,
		Truncated: "18874368 sha256:00", Source: redeliver.Source{Known: true, Partition: 3, Offset: 41},
	}
	m := read(nil, msgdriver.AppendStateHeaders(st, nil)...)
	for _, part := range []string{"18874368 sha256:00", "orders/3/41"} {
		if !strings.Contains(m.Mismatch, part) {
			t.Errorf("a replay is refused with %q, want it to say %s", m.Mismatch, part)
		}
	}
}

func TestHeadersOfOtherWriters(t *testing.T) {
	t.Parallel()
	h := func(name, value string) deadletter.Header { return deadletter.Header{Name: name, Value: []byte(value)} }
	number := func(name string, n uint64, bytes int) deadletter.Header {
		return deadletter.Header{Name: name, Value: binary.BigEndian.AppendUint64(nil, n)[8-bytes:]}
	}
	user := h("tenant", "acme")
	for name, c := range map[string]struct {
		headers []deadletter.Header
		want    string
	}{
		"none": {[]deadletter.Header{user}, "writer= error=/ reason= handler= source=false/0/0 foreign=0 mismatch=false"},
		"watermill": {
			[]deadletter.Header{user, h("reason_poisoned", "boom"), h("topic_poisoned", "orders"), h("handler_poisoned", "charge"), h("subscriber_poisoned", "kafka.Subscriber")},
			"writer=watermill error=/boom reason=exhausted handler=charge source=false/0/0 foreign=4 mismatch=false",
		},
		"watermill, another topic": {
			[]deadletter.Header{user, h("reason_poisoned", "boom"), h("topic_poisoned", "refunds")},
			"writer=watermill error=/boom reason=exhausted handler= source=false/0/0 foreign=2 mismatch=true",
		},
		"connect": {
			[]deadletter.Header{h("__connect.errors.topic", "orders"), h("__connect.errors.partition", "3"), h("__connect.errors.offset", "42"),
				h("__connect.errors.connector.name", "sink"), h("__connect.errors.stage", "VALUE_CONVERTER"),
				h("__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException"), h("__connect.errors.exception.message", "no schema"), user},
			"writer=kafka-connect error=org.apache.kafka.connect.errors.DataException/no schema reason=undecodable handler=sink source=true/3/42 foreign=7 mismatch=false",
		},
		"streams": {
			[]deadletter.Header{h("__streams.errors.exception", "java.lang.IllegalStateException: no stock"), h("__streams.errors.message", "no stock"), h("__streams.errors.stacktrace", "at ..."),
				h("__streams.errors.topic", "orders"), h("__streams.errors.partition", "3"), h("__streams.errors.offset", "42"), user},
			"writer=kafka-streams error=java.lang.IllegalStateException/no stock reason=exhausted handler= source=true/3/42 foreign=6 mismatch=false",
		},
		"streams, undecodable": {
			[]deadletter.Header{h("__streams.errors.exception", "org.apache.kafka.common.errors.SerializationException"), h("__streams.errors.topic", "refunds"), user},
			"writer=kafka-streams error=org.apache.kafka.common.errors.SerializationException/ reason=undecodable handler= source=false/0/0 foreign=2 mismatch=true",
		},
		"spring": {
			[]deadletter.Header{number("kafka_dlt-original-partition", 3, 4), number("kafka_dlt-original-offset", 42, 8), h("kafka_dlt-original-topic", "orders"),
				h("kafka_dlt-exception-fqcn", "a.B"), h("kafka_dlt-exception-message", "http://u:secret@host/ failed"), user},
			"writer=spring-kafka error=a.B/http://***@host/ failed reason=exhausted handler= source=true/3/42 foreign=5 mismatch=false",
		},
		"spring, twice": {
			[]deadletter.Header{h("kafka_dlt-original-topic", "orders"), h("kafka_dlt-exception-message", "one"), user,
				h("kafka_dlt-original-topic", "orders-retry"), h("kafka_dlt-exception-message", "two")},
			"writer=spring-kafka error=/two reason=exhausted handler= source=false/0/0 foreign=4 mismatch=false",
		},
		"spring, garbage": {
			[]deadletter.Header{h("kafka_dlt-original-partition", "three"), h("kafka_dlt-original-offset", ""), h("kafka_dlt-original-consumer-group", "mail"), user},
			"writer=spring-kafka error=/ reason=exhausted handler= source=false/0/0 foreign=3 mismatch=true",
		},
	} {
		m := read(c.headers)
		st := m.State
		got := fmt.Sprintf("writer=%s error=%s/%s reason=%s handler=%s source=%v/%d/%d foreign=%d mismatch=%v", m.Writer, st.ErrorType, st.Error,
			st.Reason, m.Handler, st.Source.Known, st.Source.Partition, st.Source.Offset, len(m.Foreign), m.Mismatch != "")
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if len(m.Headers) != 1 || m.Headers[0].Name != "tenant" {
			t.Errorf("%s: the user's headers are %v", name, m.Headers)
		}
	}
}

// RabbitMQ's own headers, with the latest death first, as an adapter passes them.
func TestHeadersOfRabbitMQ(t *testing.T) {
	info := deadletter.Info{DLQ: "dead", Origin: "orders", Group: "orders"}
	deaths := `[{"count":1,"reason":"rejected","queue":"orders","time":"2026-03-04T05:06:09Z","exchange":"","routing-keys":["orders"]},
		{"count":3,"reason":"expired","queue":"orders-wait","time":"2026-03-04T05:06:08Z"},
		{"count":2,"reason":"delivery_limit","queue":"orders","time":"2026-03-04T05:06:07Z"}]`
	m := &deadletter.Message{Headers: []deadletter.Header{{Name: "tenant", Value: []byte("acme")}, {Name: "x-death", Value: []byte(deaths)}, {Name: "x-first-death-queue", Value: []byte("orders")}, {Name: "x-first-death-reason", Value: []byte("delivery_limit")}}}
	driver.ReadHeaders(m, info, nil, func() string { return "id" })
	st := m.State
	if m.Writer != deadletter.WriterRabbitMQ || st.Reason != redeliver.ReasonRejected || st.Attempts != 3 || st.Origin != "orders" || m.Mismatch != "" || len(m.Headers) != 1 || len(m.Foreign) != 3 {
		t.Errorf("it says %+v", m)
	}
	if st.FirstFailed.Format(time.RFC3339) != "2026-03-04T05:06:07Z" || st.LastFailed.Format(time.RFC3339) != "2026-03-04T05:06:09Z" {
		t.Errorf("it failed from %s to %s", st.FirstFailed, st.LastFailed)
	}
	// RabbitMQ dead-lettered it from a level of redeliver.
	m = &deadletter.Message{Headers: []deadletter.Header{{Name: "x-first-death-queue", Value: []byte("orders.billing.retry.10s")}}}
	driver.ReadHeaders(m, orders, nil, func() string { return "m" })
	if m.State.Origin != "orders" || m.Mismatch != "" {
		t.Errorf("a dead letter from a queue of redeliver is read as %+v", m)
	}
	m = &deadletter.Message{Headers: []deadletter.Header{{Name: "x-first-death-queue", Value: []byte("refunds")}, {Name: "x-first-death-reason", Value: []byte("maxlen")}, {Name: "x-death", Value: []byte("garbage")}}}
	driver.ReadHeaders(m, info, nil, func() string { return "id" })
	if m.Mismatch == "" || m.State.Reason != "" || m.State.ErrorType != "maxlen" {
		t.Errorf("a dead letter from another queue is read as %+v", m)
	}
}

func TestHeadersOfAnSQSRedrive(t *testing.T) {
	info := deadletter.Info{DLQ: "orders-dlq", Origin: "orders", Group: "orders"}
	for source, ok := range map[string]bool{"arn:aws:sqs:eu-west-1:1234:orders": true, "arn:aws:sqs:eu-west-1:1234:refunds": false} {
		m := &deadletter.Message{Headers: []deadletter.Header{{Name: "DeadLetterQueueSourceArn", Value: []byte(source)}}}
		driver.ReadHeaders(m, info, nil, func() string { return "id" })
		if m.Writer != deadletter.WriterSQS || (m.Mismatch == "") != ok || m.State.Reason != redeliver.ReasonExhausted || len(m.Headers) != 0 {
			t.Errorf("from %s it is read as %+v", source, m)
		}
	}
}

// A time that JSON cannot represent is removed, whether it is too early or too late, even if its milliseconds do not
// fit into 64 bits.
func TestTimesOutsideJSONAreRemoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   time.Time
		kept bool
	}{
		{time.Unix(1<<61, 0), false},
		{time.Unix(1763700000000000000, 0), false}, // nanoseconds instead of seconds
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		{time.Date(-1, 12, 31, 23, 59, 59, 0, time.UTC), false},
		{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), true},
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), false},
		{time.UnixMilli(1763700000), false}, // seconds instead of milliseconds
		{time.UnixMilli(-1), false},         // Kafka's time of a record without one
		{time.Unix(1763700000, 0).UTC(), true},
	} {
		m := &deadletter.Message{Time: c.at}
		driver.ReadHeaders(m, orders, nil, func() string { return "made up" })
		if kept := m.Time.Equal(c.at); kept != c.kept || !c.kept && !m.Time.IsZero() {
			t.Errorf("seconds %d: it is read as %s", c.at.Unix(), m.Time)
		}
		if _, err := json.Marshal(m.Time); err != nil {
			t.Error(err)
		}
	}
}

// The broker fills one DLQ for several share groups. A replay sends no group the messages of another one.
func TestADLQOfShareGroupsSeparatesThem(t *testing.T) {
	t.Parallel()
	h := func(name, value string) deadletter.Header { return deadletter.Header{Name: name, Value: []byte(value)} }
	for group, foreign := range map[string]bool{"billing": false, "shipping": true} {
		m := read([]deadletter.Header{
			h("tenant", "acme"), h("__dlq.errors.topic", "orders"), h("__dlq.errors.partition", "0"), h("__dlq.errors.offset", "7"), h("__dlq.errors.group", group),
			h("__dlq.errors.delivery.count", "5"), h("__dlq.errors.message", "delivery count limit reached"),
		})
		if m.Writer != deadletter.WriterShareGroup || m.State.Attempts != 5 || m.State.Error != "delivery count limit reached" || m.State.Source.Offset != 7 || m.State.Reason != redeliver.ReasonExhausted {
			t.Errorf("group %s: read as %+v", group, m)
		}
		if len(m.Headers) != 1 || m.Headers[0].Name != "tenant" || len(m.Foreign) != 6 {
			t.Errorf("group %s: the message has the headers %+v", group, m.Headers)
		}
		if m.State.Group != group || (m.Mismatch != "") != foreign {
			t.Errorf("a message of group %s is of %s in the DLQ of billing: %q", group, m.State.Group, m.Mismatch)
		}
	}
}
