package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// Position identifies a dead letter for as long as it is in its DLQ. People can read and type it: on Kafka it is partition and
// offset, such as "2/1045"; on RabbitMQ a hash of the message; on SQS its MessageId.
type Position string

// Header is one header of a message, as the broker has it.
type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"` // nil if the broker has a null
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
	WriterRabbitMQ  Writer = "rabbitmq" // RabbitMQ itself, by a dead-letter exchange
	WriterSQS       Writer = "sqs"      // SQS itself, by a RedrivePolicy
	WriterUnknown   Writer = ""         // it has no headers that are understood
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

// Info describes a DLQ.
type Info struct {
	Broker     string // "kafka", "rabbitmq", "sqs", "memory"
	DLQ        string // its name
	OwnDLQ     string // redeliver's own DLQ, if another program fills DLQ; otherwise empty
	Origin     string // the topic or queue whose messages failed
	Group      string // the group that failed them
	ReplayTo   string // where a replay is written; only that group reads it
	ReadBy     string // group whose committed messages are skipped if another program fills DLQ, or empty
	ReadEffect string // NoReadEffect, or what reading does to messages that others wait for
	// MaxReads is how often a message may be read before another read is refused; 0 for no limit.
	MaxReads int
	// MaxHold is for how long after a read the broker lets a message be removed; 0 for no limit.
	MaxHold time.Duration
}

// NoReadEffect is the ReadEffect of an Info if reading has no effect and needs no confirmation.
const NoReadEffect = "nothing"

// Holder is the user who holds a lock of a DLQ, and the task.
type Holder struct {
	Who   string    // a person and a host, as the user gave them
	Task  string    // the id of the task
	Since time.Time // when it was taken
	Until time.Time // when it ends if it is not renewed; zero if a connection holds the lock
}

// Sentinels for errors.Is.
var (
	// ErrRefused marks an error of one message that no other try can fix, for example because the
	// message is too large.
	ErrRefused = driver.ErrRefused
	// ErrHeld marks a DLQ that another runner holds. See [HeldError].
	ErrHeld = errors.New("another runner has the DLQ")
	// ErrClaimLost marks a lock that has expired, or that another session has taken.
	ErrClaimLost = errors.New("the claim on the DLQ was lost")
	// ErrBlocked is the error of a reader if the broker shows no more messages until earlier ones are
	// settled, as in a group of a FIFO queue of SQS.
	ErrBlocked = errors.New("earlier messages must be settled first")
	// ErrNotReported marks a value that the broker does not report.
	ErrNotReported = errors.New("the broker does not report it")
	// ErrStateFull marks entries for which the state has no room.
	ErrStateFull = errors.New("no more can be recorded of the DLQ")
)

// HeldError names the holder of the DLQ.
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
