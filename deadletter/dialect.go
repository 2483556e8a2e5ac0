package deadletter

import (
	"encoding/binary"
	"slices"

	"github.com/redeliver/redeliver"
)

// Dialect says in whose header names a dead letter tells what happened, beside
// redeliver's own: for the services that read the DLQ and know those. It is written only
// where it is asked for, and redeliver itself reads its own.
type Dialect string

// The dialects.
const (
	// NoDialect is the default: redeliver's headers alone.
	NoDialect Dialect = ""
	// SpringHeaders are those of Spring Kafka's DeadLetterPublishingRecoverer,
	// KafkaHeaders.DLT_*, with numbers as big-endian bytes. The class names are Go's names of
	// types, and the stack trace is one line, the error.
	// Source: org.springframework.kafka.support.KafkaHeaders.
	SpringHeaders Dialect = "spring"
	// WatermillHeaders are those of Watermill's middleware.PoisonQueue. Handler and
	// subscriber are empty for messages that did not come through a Router.
	// Source: watermill's message/router/middleware/poison.go.
	WatermillHeaders Dialect = "watermill"
)

// Dialects returns all dialects but NoDialect.
func Dialects() []Dialect { return []Dialect{SpringHeaders, WatermillHeaders} }

// Known tells whether d is a dialect, NoDialect among them.
func (d Dialect) Known() bool { return d == NoDialect || slices.Contains(Dialects(), d) }

// springNoTimestampType is what org.apache.kafka.common.record.TimestampType calls what is not
// known: not every client tells who set a record's time.
const springNoTimestampType = "NoTimestampType"

// Append appends the dialect's headers for a dead letter with that state. handler and
// subscriber are what a Router calls them, empty where there was none. All of them are at
// most 5 KiB.
func (d Dialect) Append(to []Header, st *redeliver.State, handler, subscriber string) []Header {
	const most = 512 // as a header's of redeliver's
	add := func(name, value string, most int) {
		to = append(to, Header{Name: name, Value: []byte(redeliver.Cut(value, most))})
	}
	number := func(name string, value []byte) { to = append(to, Header{Name: name, Value: value}) }
	switch d {
	case SpringHeaders:
		add(springPrefix+"original-topic", st.Origin, most)
		add(springGroup, st.Group, most)
		if st.Source.Known {
			number(springPrefix+"original-partition", binary.BigEndian.AppendUint32(nil, uint32(st.Source.Partition)))
			number(springPrefix+"original-offset", binary.BigEndian.AppendUint64(nil, uint64(st.Source.Offset)))
		}
		if !st.Source.Timestamp.IsZero() {
			number(springPrefix+"original-timestamp", binary.BigEndian.AppendUint64(nil, uint64(st.Source.Timestamp.UnixMilli())))
			add(springPrefix+"original-timestamp-type", springNoTimestampType, most)
		}
		add(springPrefix+"exception-fqcn", st.ErrorType, most)
		add(springPrefix+"exception-message", st.Error, redeliver.MaxErrorText)
		add(springPrefix+"exception-stacktrace", st.ErrorType+": "+st.Error, redeliver.MaxErrorText)
	case WatermillHeaders:
		add(watermillReason, st.Error, redeliver.MaxErrorText)
		add(watermillTopic, st.Origin, most)
		add(watermillHandler, handler, most)
		add(watermillSubscriber, subscriber, most)
	default:
	}
	return to
}
