package deadletter

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
)

// Position identifies a dead letter for as long as it is in its DLQ. People can read and type it: on Kafka it is partition and
// offset, such as "2/1045"; on RabbitMQ a hash of the message; on SQS its MessageId.
type Position string

// Header is one header of a message, as the broker has it. In JSON its value is in base64, and so is a name that is not UTF-8, as
// "name_base64" beside its closest text.
type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"` // nil if the broker has a null
}

// jsonHeader is a Header in JSON, which has no text for other bytes than UTF-8.
type jsonHeader struct {
	Name  string `json:"name"`
	Bytes []byte `json:"name_base64,omitempty"`
	Value []byte `json:"value"`
}

// MarshalJSON implements [json.Marshaler].
func (h Header) MarshalJSON() ([]byte, error) {
	j := jsonHeader{Name: h.Name, Value: h.Value}
	if !utf8.ValidString(h.Name) {
		j.Bytes = []byte(h.Name)
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Header) UnmarshalJSON(text []byte) error {
	var j jsonHeader
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*h = Header{Name: j.Name, Value: j.Value}
	if j.Bytes != nil {
		h.Name = string(j.Bytes)
	}
	return nil
}

// Message is one dead letter.
type Message struct {
	// ID is the message's id. It stays the same through all attempts, the DLQ and replays.
	ID string
	// Position is its place in the DLQ.
	Position Position
	// Time is when it was written to the DLQ, by its writer's clock.
	Time time.Time
	// Key and Body are exactly as they were published, or nil.
	Key, Body []byte
	// Headers are the user's, in order, repeated ones included. State has those of redeliver, and
	// Foreign those of other programs that fill the DLQ.
	Headers []Header
	// Properties are values that the broker keeps in addition to the headers, under the adapter's names: on RabbitMQ
	// "content-type" and so on. An export has them.
	Properties []Header
	// State says why it is in the DLQ: reason, error, attempts, times, replays.
	State redeliver.State
	// Findings are the problems of its headers.
	Findings []redeliver.Finding
	// Writer is the program that put it there.
	Writer Writer
	// Foreign are the headers that a writer other than redeliver added. A replay does not send
	// them.
	Foreign []Header
	// Handler is the name of the handler that failed, if the writer reports it.
	Handler string
	// Mismatch says why the message cannot be replayed: its headers name another group or origin
	// than the DLQ's, or its body was left out. Such a message is shown and exported. Mismatch is empty
	// if there is no reason.
	Mismatch string
	// Native is for the adapter, which finds the message on its broker with it.
	Native any
}

// Failed returns when the message last failed, if that is known, and otherwise when it was written to the DLQ. It is
// zero if neither is known.
func (m *Message) Failed() time.Time {
	if m.State.LastFailed.IsZero() {
		return m.Time
	}
	return m.State.LastFailed
}

// Writer is the program that writes a DLQ.
type Writer string

// The writers whose headers are understood.
const (
	WriterRedeliver Writer = "redeliver"
	WriterSpring    Writer = "spring-kafka"
	WriterWatermill Writer = "watermill"
	WriterConnect   Writer = "kafka-connect"
	WriterStreams   Writer = "kafka-streams"
	// WriterShareGroup is a Kafka broker, for a share group (KIP-1191).
	WriterShareGroup Writer = "kafka-share-group"
	WriterRabbitMQ   Writer = "rabbitmq" // RabbitMQ itself, by a dead-letter exchange
	WriterSQS        Writer = "sqs"      // SQS itself, by a RedrivePolicy
	WriterUnknown    Writer = ""         // it has no headers that are understood
)

// Outcome is the outcome of a dead letter in a task.
type Outcome string

// The outcomes. With the first three the message leaves the DLQ. With the others it stays.
const (
	OutcomeReplayed Outcome = "replayed" // a copy is confirmed for its group
	OutcomeEdited   Outcome = "edited"   // an edited copy is confirmed for its group
	OutcomePurged   Outcome = "purged"   // somebody removed it
	OutcomeSkipped  Outcome = "skipped"  // was replayed too often already
	OutcomeRefused  Outcome = "refused"  // has a Mismatch, or the broker refused it
)

// LeavesDLQ reports whether the message is no longer in the DLQ.
func (o Outcome) LeavesDLQ() bool {
	return o == OutcomeReplayed || o == OutcomeEdited || o == OutcomePurged
}

// Settlement is the outcome of one message.
type Settlement struct {
	Message *Message
	Outcome Outcome

	why     string // why it was refused, for the report
	changed bool   // a Change has changed the copy
}

// sizeOf estimates the memory that a message takes, in bytes.
func sizeOf(m *Message) int {
	const each = 64 // overhead of a header
	n := len(m.Key) + len(m.Body)
	for _, headers := range [...][]Header{m.Headers, m.Properties, m.Foreign} {
		for _, h := range headers {
			n += each + len(h.Name) + len(h.Value)
		}
	}
	return n
}
