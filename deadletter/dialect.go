package deadletter

import (
	"slices"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/foreign"
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

// Known reports whether d is a dialect, NoDialect among them.
func (d Dialect) Known() bool { return d == NoDialect || slices.Contains(Dialects(), d) }

// Append appends the dialect's headers for a dead letter with that state. handler and
// subscriber are what a Router calls them, empty where there was none. All of them are at
// most 5 KiB.
func (d Dialect) Append(to []Header, st *redeliver.State, handler, subscriber string) []Header {
	switch d {
	case SpringHeaders:
		return foreign.AppendSpring(to, st)
	case WatermillHeaders:
		return foreign.AppendWatermill(to, st, handler, subscriber)
	default:
		return to
	}
}
