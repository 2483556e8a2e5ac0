package foreign

import (
	"cmp"
	"encoding/binary"
	"maps"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/limits"
)

// Spring Kafka's headers, of org.springframework.kafka.support.KafkaHeaders and retrytopic.RetryTopicHeaders. Its
// DeadLetterPublishingRecoverer writes kafka_dlt-*. @RetryableTopic writes kafka_original-* and kafka_exception-*
// instead, on its retry topics and on its DLT, but the group is in kafka_dlt-original-consumer-group there, too.
// Numbers are big-endian: 4 bytes for a partition or a count, 8 for an offset or a time. The values of
// retry_topic-*-timestamp have as few bytes as possible (BigInteger.toByteArray).
const (
	springPrefix    = "kafka_dlt-"
	springOriginal  = "kafka_original-"
	springException = "kafka_exception-"
	springKey       = "kafka_key-exception-" // for a key that could not be deserialised
	springRetry     = "retry_topic-"
	springGroup     = springPrefix + "original-consumer-group"
	springAttempts  = springRetry + "attempts"           // the number of the next attempt
	springDue       = springRetry + "backoff-timestamp"  // when it may begin
	springWritten   = springRetry + "original-timestamp" // when the message was written to its origin
	springDelivery  = "kafka_deliveryAttempt"            // number of deliveries by a container, if it is set
	springUndecoded = "DeserializationException"         // ends the name of an exception of ErrorHandlingDeserializer
)

// lastMilli is the end of the year 9999, the last that a time in JSON can have. Read ignores later times.
const lastMilli = 253_402_300_799_999

func isSpring(name string) bool {
	if strings.HasPrefix(name, springRetry) {
		return true
	}
	return strings.HasPrefix(name, "kafka_") && (strings.HasPrefix(name, springPrefix) || strings.HasPrefix(name, springOriginal) ||
		strings.HasPrefix(name, springException) || strings.HasPrefix(name, springKey))
}

// isWeakSpringHeader reports whether a header is only weak evidence that Spring filled the DLQ. @RetryableTopic also writes such
// headers on its retry topics. A service that forwards a message may copy them to another topic, whose messages another program
// dead-letters.
func isWeakSpringHeader(name string) bool {
	return isSpring(name) && (!strings.HasPrefix(name, springPrefix) || name == springGroup)
}

// IsSpringOriginal reports whether a header says where a message first failed. Spring never replaces such a header, but
// with kafka_dlt- it appends another one.
func IsSpringOriginal(name string) bool {
	return strings.HasPrefix(name, springOriginal) || strings.HasPrefix(name, springPrefix+"original-")
}

func readSpring(m *deadletter.Message, info deadletter.Info, values map[string][]byte, text func(string) string) {
	st := &m.State
	if before := text(springOriginal + "topic"); before != "" && before != info.Origin && text(springPrefix+"original-topic") == info.Origin {
		// A service copied the header from another topic. The recoverer appended the values for this topic.
		for _, h := range m.Foreign {
			if h.Name == springGroup {
				values[springGroup] = h.Value
			}
		}
		maps.DeleteFunc(values, func(name string, _ []byte) bool { return name != springGroup && isWeakSpringHeader(name) })
	}
	// The place and error headers of the retry topics are older.
	original := func(what string) []byte {
		if v, ok := values[springOriginal+what]; ok {
			return v
		}
		return values[springPrefix+"original-"+what]
	}
	exception := func(what string) string {
		return cmp.Or(text(springPrefix+"exception-"+what), text(springException+what))
	}
	st.Error = exception("message")
	// The cause is the user's exception. Spring's own exception wraps it.
	st.ErrorType = cmp.Or(exception("cause-fqcn"), exception("fqcn"))
	st.Reason = redeliver.ReasonExhausted
	if strings.HasSuffix(exception("fqcn"), springUndecoded) || strings.HasSuffix(exception("cause-fqcn"), springUndecoded) {
		st.Reason = redeliver.ReasonUndecodable
	}
	partition, ok1 := bigEndian(original("partition"))
	offset, ok2 := bigEndian(original("offset"))
	setPlace(st, partition, ok1, offset, ok2)
	for _, v := range [...][]byte{original("timestamp"), values[springWritten]} {
		if ms, ok := shortBigEndian(v); ok && ms > 0 && ms <= lastMilli && st.Source.Timestamp.IsZero() {
			st.Source.Timestamp = time.UnixMilli(ms).UTC()
		}
	}
	readSpringRetry(m, values)
	m.CheckSubscription(info, text(springGroup), cmp.Or(text(springOriginal+"topic"), text(springPrefix+"original-topic")))
}

// readSpringRetry reads the counts and the due time of @RetryableTopic. A message on a retry topic of Spring's is no dead letter: it
// waits. A group that moves from Spring to redeliver reads such messages, too.
func readSpringRetry(m *deadletter.Message, values map[string][]byte) {
	st := &m.State
	if n, ok := bigEndian(values[springDelivery]); ok && n > 0 && n <= limits.MaxAttempts {
		st.Attempts = int(n)
	}
	next, ok := bigEndian(values[springAttempts])
	if b := values[springAttempts]; len(b) == 1 { // older versions wrote one byte
		next, ok = int64(b[0]), true
	}
	if ok && next > 1 && next <= limits.MaxAttempts {
		st.Attempts = int(next - 1)
	}
	// A message waits if it is due later than it was written. A dead letter is not due later.
	at := m.Time.UnixMilli()
	if ms, ok := shortBigEndian(values[springDue]); ok && ms > 0 && ms <= lastMilli && at < ms && at >= ms-redeliver.MaxWait.Milliseconds() {
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
