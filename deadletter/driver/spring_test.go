package driver_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// springs returns headers as @RetryableTopic writes them: attempts is the number of the next one.
func springs(attempts uint32, due time.Time, more ...deadletter.Header) []deadletter.Header {
	h := func(name, value string) deadletter.Header { return deadletter.Header{Name: name, Value: []byte(value)} }
	return append([]deadletter.Header{
		h("tenant", "acme"),
		h("kafka_original-topic", "orders"),
		{Name: "kafka_original-partition", Value: binary.BigEndian.AppendUint32(nil, 3)},
		{Name: "kafka_original-offset", Value: binary.BigEndian.AppendUint64(nil, 42)},
		h("kafka_original-timestamp-type", "CreateTime"),
		h("kafka_dlt-original-consumer-group", "billing"),
		h("kafka_exception-fqcn", "org.springframework.kafka.listener.ListenerExecutionFailedException"),
		h("kafka_exception-cause-fqcn", "java.net.SocketTimeoutException"),
		h("kafka_exception-message", "Read timed out"),
		{Name: "retry_topic-attempts", Value: binary.BigEndian.AppendUint32(nil, 2)}, // of the previous failure
		{Name: "retry_topic-attempts", Value: binary.BigEndian.AppendUint32(nil, attempts)},
		{Name: "retry_topic-original-timestamp", Value: big.NewInt(1_600_000_000_000).Bytes()},
		{Name: "retry_topic-backoff-timestamp", Value: big.NewInt(due.UnixMilli()).Bytes()},
	}, more...)
}

var written = time.Unix(1_700_000_000, 0).UTC() // the time of the messages of read

func TestHeadersOfSpringsRetryTopics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers []deadletter.Header
		want    string
	}{
		"dead":    {springs(4, written), "reason=exhausted attempts=3 due= id=made up replays=0 headers=1"},
		"waiting": {springs(2, written.Add(time.Hour)), "reason= attempts=1 due=2023-11-14T23:13:20Z id=made up replays=0 headers=1"},
		"of an older Spring": {
			springs(0, written, deadletter.Header{Name: "retry_topic-attempts", Value: []byte{200}}),
			"reason=exhausted attempts=199 due= id=made up replays=0 headers=1",
		},
		"garbage": {
			springs(1<<31, written, deadletter.Header{Name: "retry_topic-backoff-timestamp", Value: make([]byte, 9)}),
			"reason=exhausted attempts=0 due= id=made up replays=0 headers=1",
		},
		"due in a thousand years": {springs(4, written.AddDate(1000, 0, 0)), "reason=exhausted attempts=3 due= id=made up replays=0 headers=1"},
		"undecodable": {
			springs(2, written, deadletter.Header{Name: "kafka_exception-cause-fqcn", Value: []byte("org.springframework.kafka.support.serializer.DeserializationException")}),
			"reason=undecodable attempts=1 due= id=made up replays=0 headers=1",
		},
		"replayed before": {
			springs(4, written, deadletter.Header{Name: redeliver.HeaderID, Value: []byte("made up")}, deadletter.Header{Name: redeliver.HeaderReplays, Value: []byte("2")}),
			"reason=exhausted attempts=3 due= id=made up replays=2 headers=1",
		},
		"headers copied from another": {
			springs(4, written, deadletter.Header{Name: redeliver.HeaderID, Value: []byte("orders/0/1")}, deadletter.Header{Name: redeliver.HeaderReplays, Value: []byte("3")}),
			"reason=exhausted attempts=3 due= id=made up replays=0 headers=3",
		},
	} {
		m := read(c.headers)
		st := m.State
		due := ""
		if !st.Due.IsZero() {
			due = st.Due.Format(time.RFC3339)
		}
		if got := fmt.Sprintf("reason=%s attempts=%d due=%s id=%s replays=%d headers=%d", st.Reason, st.Attempts, due, m.ID, st.Replays, len(m.Headers)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if m.Writer != deadletter.WriterSpring || m.Mismatch != "" || st.Error != "Read timed out" || !st.Source.Known || st.Source.Partition != 3 ||
			st.Source.Offset != 42 || st.Source.Timestamp.Unix() != 1_600_000_000 {
			t.Errorf("%s: read as %+v", name, m)
		}
	}
}

// A wrong time would end a listing, which is JSON, or show its message as waiting forever.
func TestImpossibleTimesAreNotTrusted(t *testing.T) {
	t.Parallel()
	last := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	for _, at := range []time.Time{written, time.UnixMilli(-1), time.UnixMilli(math.MinInt64), last} {
		for _, forged := range []uint64{math.MaxInt64, 1 << 63, uint64(last.UnixMilli()) + 1, 0} {
			value := binary.BigEndian.AppendUint64(nil, forged)
			for _, name := range []string{"kafka_dlt-original-timestamp", "kafka_original-timestamp", "retry_topic-original-timestamp", "retry_topic-backoff-timestamp"} {
				m := &deadletter.Message{Time: at, Headers: []deadletter.Header{{Name: name, Value: value}}}
				driver.ReadHeaders(m, orders, nil, func() string { return "made up" })
				if st := m.State; !st.Source.Timestamp.IsZero() || !st.Due.IsZero() || st.Reason != redeliver.ReasonExhausted {
					t.Errorf("written at %s, %s says %#x: of %s, due %s, %q", at, name, forged, st.Source.Timestamp, st.Due, st.Reason)
				}
			}
		}
	}
	m := read([]deadletter.Header{{Name: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(last.UnixMilli()))}})
	if !m.State.Source.Timestamp.Equal(last) {
		t.Errorf("the last valid time is read as %s", m.State.Source.Timestamp)
	}
	if _, err := json.Marshal(m.State.Source.Timestamp); err != nil {
		t.Error(err)
	}
}

// The time of the record itself is checked, too, because its writer may have any clock.
func TestRecordTimesOutsideJSONAreRemoved(t *testing.T) {
	t.Parallel()
	last := time.UnixMilli(253_402_300_799_999).UTC()
	for at, believed := range map[time.Time]bool{
		written: true, last: true, last.Add(time.Millisecond): false, time.UnixMilli(math.MaxInt64): false, time.UnixMilli(math.MinInt64): false, {}: true,
	} {
		for _, ours := range [][]msgdriver.Header{nil, {{Name: redeliver.HeaderAttempt, Value: "1"}}} {
			m := &deadletter.Message{Time: at}
			driver.ReadHeaders(m, orders, ours, func() string { return "made up" })
			for _, got := range []time.Time{m.Time, m.State.LastFailed, m.Failed()} {
				if _, err := json.Marshal(got); err != nil {
					t.Error(err)
				}
			}
			if m.Time.Equal(at) != believed {
				t.Errorf("%s is shown as %s", at, m.Time)
			}
		}
	}
}

// A message that goes back to Spring has its first failure's place, once, and no other headers of the failure.
func TestForeignReplayHeadersKeepTheFirstFailure(t *testing.T) {
	t.Parallel()
	headers := springs(4, written,
		deadletter.Header{Name: "kafka_original-topic", Value: []byte("orders-retry")}, // appended after the first
		deadletter.Header{Name: redeliver.HeaderID, Value: []byte("made up")}, deadletter.Header{Name: redeliver.HeaderReplays, Value: []byte("1")})
	var got []string
	for _, h := range driver.ForeignReplayHeaders(read(headers), orders) {
		got = append(got, h.Name)
		if h.Name == "kafka_original-topic" && string(h.Value) != "orders" || h.Name == redeliver.HeaderReplays && string(h.Value) != "2" {
			t.Errorf("%s is %q", h.Name, h.Value)
		}
	}
	if want := "[tenant kafka_original-topic kafka_original-partition kafka_original-offset kafka_original-timestamp-type " +
		"kafka_dlt-original-consumer-group redeliver-id redeliver-replays]"; fmt.Sprint(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Headers that redeliver writes for Spring are read as Spring's headers.
func TestWrittenSpringHeadersAreReadAsSpring(t *testing.T) {
	t.Parallel()
	m := read(foreign.AppendSpring(nil, &redeliver.State{
		Group: "billing", Origin: "orders", Error: "no such card", ErrorType: "*bank.Error",
		Source: redeliver.Source{Known: true, Partition: 3, Offset: 1 << 40, Timestamp: written},
	}))
	got := fmt.Sprintf("%s %s/%s %d/%d %s", m.Writer, m.State.ErrorType, m.State.Error, m.State.Source.Partition, m.State.Source.Offset, m.State.Source.Timestamp)
	if want := "spring-kafka *bank.Error/no such card 3/1099511627776 2023-11-14 22:13:20 +0000 UTC"; got != want || m.Mismatch != "" || len(m.Headers) > 0 {
		t.Errorf("\n got %s\nwant %s (%q)", got, want, m.Mismatch)
	}
}
