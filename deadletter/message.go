package deadletter

import (
	"time"

	"github.com/redeliver/redeliver"
)

// Position names the place of a dead letter in its DLQ, for a person to give
// back: "2/1045" on Kafka, partition and offset; on RabbitMQ a hash of the message,
// on SQS its MessageId. It names one message for as long as that lies there.
type Position string

// Header is one header of a user's, as it is on the wire.
type Header struct {
	Name  string
	Value []byte // nil where the broker has a null
}

// Message is one dead letter.
type Message struct {
	// ID stays the same through all attempts, the DLQ and replays.
	ID string
	// Position is its place in the DLQ.
	Position Position
	// Time is when it was written there, by the writer's clock.
	Time time.Time
	// Key and Body are exactly as published. Nil for none.
	Key, Body []byte
	// Headers are the user's, in order, with all that stand twice. Those of
	// redeliver are in State, those of whoever else filled the DLQ in Foreign.
	Headers []Header
	// Properties are what the broker keeps beside the headers, as the adapter names
	// it: on RabbitMQ "content-type" and so on. An export has them.
	Properties []Header
	// State says why it is dead: reason, error, attempts, times, replays.
	State redeliver.State
	// Findings are what is wrong with its headers.
	Findings []redeliver.Finding
	// Filler is who put it there.
	Filler Filler
	// Foreign are the headers that a filler other than redeliver added. They
	// are not sent along when the message is replayed.
	Foreign []Header
	// Handler is the name of the handler that failed, where the filler says it.
	Handler string
	// Mismatch says why the message cannot be replayed: it does not belong to this DLQ's
	// group and origin, as its headers tell, or its body was left out. Empty when it can.
	// Such a message is shown and exported.
	Mismatch string
	// Mark is what was recorded of it while it stays: quarantined or refused.
	Mark Outcome
	// Native is the adapter's own, to find the message again.
	Native any
}

// Failed is when the message failed last, as far as it says so; else when it was
// written to the DLQ. Zero where neither is known.
func (m *Message) Failed() time.Time {
	if m.State.LastFailed.IsZero() {
		return m.Time
	}
	return m.State.LastFailed
}

// size is about what a message takes of memory.
func (m *Message) size() int {
	const each = 64 // of a header, besides its bytes
	n := len(m.Key) + len(m.Body)
	for _, headers := range [...][]Header{m.Headers, m.Properties, m.Foreign} {
		for _, h := range headers {
			n += each + len(h.Name) + len(h.Value)
		}
	}
	return n
}

// Filler is who writes a DLQ.
type Filler string

// The fillers whose headers are understood.
const (
	FilledByRedeliver Filler = "redeliver"
	FilledBySpring    Filler = "spring-kafka"
	FilledByWatermill Filler = "watermill"
	FilledByConnect   Filler = "kafka-connect"
	FilledByRabbitMQ  Filler = "rabbitmq" // itself, by a dead-letter exchange
	FilledBySQS       Filler = "sqs"      // itself, by a RedrivePolicy
	FilledByUnknown   Filler = ""         // no header says it
)

// Outcome is what became of a dead letter.
type Outcome string

// The outcomes. The first three take the message out of the DLQ, the others mark
// one that stays.
const (
	Replayed    Outcome = "replayed"    // a copy is confirmed on the way back to its group
	Edited      Outcome = "edited"      // an edited copy is
	Purged      Outcome = "purged"      // somebody removed it
	Quarantined Outcome = "quarantined" // it was replayed as often as allowed, and came back each time
	Refused     Outcome = "refused"     // its headers name another group or origin
)

// Out tells whether the message is no longer in the DLQ.
func (o Outcome) Out() bool { return o == Replayed || o == Edited || o == Purged }

// Settlement is an outcome of one message.
type Settlement struct {
	Message *Message
	Outcome Outcome
}
