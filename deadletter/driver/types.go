package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
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
	// Headers are the user's, in order, with all that stand twice. Those of redeliver are in State, those of
	// other programs that fill the DLQ in Foreign.
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

// Filler is who writes a DLQ.
type Filler string

// The fillers whose headers are understood.
const (
	FilledByRedeliver Filler = "redeliver"
	FilledBySpring    Filler = "spring-kafka"
	FilledByWatermill Filler = "watermill"
	FilledByConnect   Filler = "kafka-connect"
	FilledByStreams   Filler = "kafka-streams"
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

// Out reports whether the message is no longer in the DLQ.
func (o Outcome) Out() bool { return o == Replayed || o == Edited || o == Purged }

// Info says what a DLQ is.
type Info struct {
	Broker string // "kafka", "rabbitmq", "sqs", "memory"
	DLQ    string // its name
	Own    string // redeliver's own DLQ for them, where somebody else fills DLQ; else empty
	Origin string // the topic or queue whose messages failed
	Group  string // the group that failed them
	Back   string // where a replay is written, and only that group reads
	ReadBy string // whose commits are passed over, where somebody else fills it; empty for nobody's
	Look   string // what looking costs: FreeLook, or what counter it changes
}

// FreeLook is an [Info]'s Look where looking changes nothing, and may be done unasked.
const FreeLook = "nothing"

// Holder is who has a DLQ, and for what.
type Holder struct {
	Who   string    // a person and a host, as they call themselves
	Task  string    // the id of the task
	Since time.Time // when it was taken
	Until time.Time // when it ends if it is not renewed; zero where the connection holds it
}

// Sentinels for errors.Is.
var (
	// ErrRefused marks an error that concerns one message, however often it is written: it is too large, say.
	ErrRefused = driver.ErrRefused
	// ErrHeld marks a DLQ that another runner has. See [HeldError].
	ErrHeld = errors.New("another runner has the DLQ")
	// ErrLost marks a lock that has run out, or was taken over.
	ErrLost = errors.New("the claim on the DLQ was lost")
	// ErrBehind is a reader's where what is in hand holds up what is behind it: in a group of a
	// FIFO queue of SQS.
	ErrBehind = errors.New("earlier messages must be settled first")
	// ErrNotTold marks what a broker does not report of a DLQ.
	ErrNotTold = errors.New("the broker does not report it")
	// ErrFull marks entries for which the state has no room.
	ErrFull = errors.New("no more can be recorded of the DLQ")
)

// HeldError says who has the DLQ.
type HeldError struct {
	DLQ    string
	Holder Holder
}

func (e *HeldError) Error() string {
	text := fmt.Sprintf("dlq %s is held by %s for task %s since %s", e.DLQ, e.Holder.Who, e.Holder.Task, e.Holder.Since.UTC().Format(time.RFC3339))
	if !e.Holder.Until.IsZero() {
		text += fmt.Sprintf(", until %s unless renewed", e.Holder.Until.UTC().Format(time.RFC3339))
	}
	return text + "; pause or cancel that task, or wait"
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
