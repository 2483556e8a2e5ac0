package driver_test

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// A service that forwards a message also copies the headers of retry topics. The program that fills the DLQ writes its
// own headers before or after them, and those count.
func TestCopiedHeadersOfRetryTopicsDoNotCount(t *testing.T) {
	t.Parallel()
	number := func(name string, n uint64, bytes int) deadletter.Header {
		return deadletter.Header{Name: name, Value: binary.BigEndian.AppendUint64(nil, n)[8-bytes:]}
	}
	along := []deadletter.Header{
		named("tenant", "acme"), named("kafka_original-topic", "upstream"), number("kafka_original-partition", 9, 4), number("kafka_original-offset", 99, 8),
		named("kafka_dlt-original-consumer-group", "mail"), named("kafka_exception-message", "theirs"), number("retry_topic-attempts", 8, 4),
		{Name: "retry_topic-original-timestamp", Value: big.NewInt(1_500_000_000_000).Bytes()},
	}
	recoverer := []deadletter.Header{
		named("kafka_dlt-original-topic", "orders"), number("kafka_dlt-original-partition", 3, 4), number("kafka_dlt-original-offset", 42, 8),
		named("kafka_dlt-original-consumer-group", "billing"), named("kafka_dlt-exception-message", "ours"),
	}
	poison := []deadletter.Header{named("topic_poisoned", "orders"), named("reason_poisoned", "ours")}
	join := func(all ...[]deadletter.Header) (headers []deadletter.Header) {
		for _, some := range all {
			headers = append(headers, some...)
		}
		return headers
	}
	const spring = "spring-kafka: ours, attempts 0, true/3/42 at -62135596800, headers 1, of orders/billing"
	const watermill = "watermill: ours, attempts 0, false/0/0 at -62135596800, headers 8, of orders/billing"
	for name, c := range map[string]struct {
		headers []deadletter.Header
		want    string
	}{
		"the recoverer's behind":               {join(along, recoverer), spring},
		"another failure behind":               {join(along, recoverer, recoverer), spring},
		"a poison queue's headers after them":  {join(along, poison), watermill},
		"a poison queue's headers before them": {join(poison, along), watermill},
		"nobody's: another's letter":           {along, "spring-kafka: theirs, attempts 7, true/9/99 at 1500000000, headers 1, of orders/mail"},
		"headers of our own retry topics":      {springs(4, written), "spring-kafka: Read timed out, attempts 3, true/3/42 at 1600000000, headers 1, of orders/billing"},
		"headers of our own retry topics, and a second failure": {
			join(springs(4, written), []deadletter.Header{named("kafka_dlt-original-topic", "orders")}),
			"spring-kafka: Read timed out, attempts 3, true/3/42 at 1600000000, headers 1, of orders/billing",
		},
	} {
		m := read(c.headers)
		st := m.State
		got := fmt.Sprintf("%s: %s, attempts %d, %v/%d/%d at %d, headers %d, of %s/%s", m.Writer, st.Error, st.Attempts, st.Source.Known, st.Source.Partition,
			st.Source.Offset, st.Source.Timestamp.Unix(), len(m.Headers), st.Origin, st.Group)
		if got != c.want || (m.Mismatch != "") != (st.Group == "mail") {
			t.Errorf("%s: %q\n got %s\nwant %s", name, m.Mismatch, got, c.want)
		}
	}
}
