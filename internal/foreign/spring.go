package foreign

import (
	"cmp"
	"encoding/binary"
	"maps"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Spring Kafka's headers, of org.springframework.kafka.support.KafkaHeaders and
// retrytopic.RetryTopicHeaders. Its DeadLetterPublishingRecoverer writes kafka_dlt-*;
// @RetryableTopic writes kafka_original-* and kafka_exception-* in their place, on its
// retry topics and on its DLT, but the group is in kafka_dlt-original-consumer-group
// there, too. Numbers are big-endian bytes: 4 of a partition or a count, 8 of an offset or
// a time, and retry_topic-*-timestamp as few as do (BigInteger.toByteArray).
const (
	springPrefix     = "kafka_dlt-"
	springOriginal   = "kafka_original-"
	springException  = "kafka_exception-"
	springKey        = "kafka_key-exception-" // of a key that could not be read
	springRetry      = "retry_topic-"
	springGroup      = springPrefix + "original-consumer-group"
	springAttempts   = springRetry + "attempts"           // the number of the attempt that is next
	springDue        = springRetry + "backoff-timestamp"  // when it may begin
	springFirstStood = springRetry + "original-timestamp" // when the message was written to its origin
	springDelivery   = "kafka_deliveryAttempt"            // how often a container has delivered it, where it says so
	springUndecoded  = "DeserializationException"         // ends the name of what an ErrorHandlingDeserializer throws
)

// lastMilli is the end of the year 9999, of the last that a time in JSON can have. A later time is not believed.
const lastMilli = 253_402_300_799_999

func isSpring(name string) bool {
	if strings.HasPrefix(name, springRetry) {
		return true
	}
	return strings.HasPrefix(name, "kafka_") && (strings.HasPrefix(name, springPrefix) || strings.HasPrefix(name, springOriginal) ||
		strings.HasPrefix(name, springException) || strings.HasPrefix(name, springKey))
}

// isSpringLoose tells a header that proves little of who filled the DLQ: @RetryableTopic
// writes it on its retry topics, too, and a service that sends on what it was given carries
// it along, to where another fails it.
func isSpringLoose(name string) bool {
	return isSpring(name) && (!strings.HasPrefix(name, springPrefix) || name == springGroup)
}

// IsSpringOriginal reports whether a header says where a message first failed: Spring
// never writes it anew, but, with kafka_dlt-, again behind the first.
func IsSpringOriginal(name string) bool {
	return strings.HasPrefix(name, springOriginal) || strings.HasPrefix(name, springPrefix+"original-")
}

func readSpring(m *driver.Message, info driver.Info, said map[string][]byte, text func(string) string) {
	st := &m.State
	if before := text(springOriginal + "topic"); before != "" && before != info.Origin && text(springPrefix+"original-topic") == info.Origin {
		// Carried along from another topic: the recoverer has written behind it what is so here.
		for _, h := range m.Foreign {
			if h.Name == springGroup {
				said[springGroup] = h.Value
			}
		}
		maps.DeleteFunc(said, func(name string, _ []byte) bool { return name != springGroup && isSpringLoose(name) })
	}
	// The headers of the retry topics are older: about its place and its error.
	original := func(what string) []byte {
		if v, ok := said[springOriginal+what]; ok {
			return v
		}
		return said[springPrefix+"original-"+what]
	}
	exception := func(what string) string {
		return cmp.Or(text(springPrefix+"exception-"+what), text(springException+what))
	}
	st.Error = exception("message")
	// The cause is the user's exception; what wraps it is Spring's own.
	st.ErrorType = cmp.Or(exception("cause-fqcn"), exception("fqcn"))
	st.Reason = redeliver.ReasonExhausted
	if strings.HasSuffix(exception("fqcn"), springUndecoded) || strings.HasSuffix(exception("cause-fqcn"), springUndecoded) {
		st.Reason = redeliver.ReasonUndecodable
	}
	partition, ok1 := bigEndian(original("partition"))
	offset, ok2 := bigEndian(original("offset"))
	place(st, partition, ok1, offset, ok2)
	for _, v := range [...][]byte{original("timestamp"), said[springFirstStood]} {
		if ms, ok := shortBigEndian(v); ok && ms > 0 && ms <= lastMilli && st.Source.Timestamp.IsZero() {
			st.Source.Timestamp = time.UnixMilli(ms).UTC()
		}
	}
	readSpringRetry(m, said)
	Belongs(m, info, text(springGroup), cmp.Or(text(springOriginal+"topic"), text(springPrefix+"original-topic")))
}

// readSpringRetry reads what @RetryableTopic counts. On its retry topics a message is
// not dead: it waits, and is what a group that moves from Spring to redeliver takes along.
func readSpringRetry(m *driver.Message, said map[string][]byte) {
	st := &m.State
	if n, ok := bigEndian(said[springDelivery]); ok && n > 0 && n <= limits.MaxAttempts {
		st.Attempts = int(n)
	}
	next, ok := bigEndian(said[springAttempts])
	if b := said[springAttempts]; len(b) == 1 { // as older ones wrote it
		next, ok = int64(b[0]), true
	}
	if ok && next > 1 && next <= limits.MaxAttempts {
		st.Attempts = int(next - 1)
	}
	// A message that goes to the DLT is due when it has failed, so not after it was written.
	at := m.Time.UnixMilli()
	if ms, ok := shortBigEndian(said[springDue]); ok && ms > 0 && ms <= lastMilli && at < ms && at >= ms-redeliver.MaxWait.Milliseconds() {
		st.Due, st.Reason = time.UnixMilli(ms).UTC(), ""
	}
}

// bigEndian reads a number of 4 or 8 bytes.
func bigEndian(b []byte) (int64, bool) {
	switch len(b) {
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b))), true
	case 8:
		return int64(binary.BigEndian.Uint64(b)), true
	default:
		return 0, false
	}
}

// shortBigEndian reads a number of at most 8 bytes, as Java's BigInteger writes it.
func shortBigEndian(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 8 {
		return 0, false
	}
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n, true
}
