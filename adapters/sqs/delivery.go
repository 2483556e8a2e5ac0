package sqs

import (
	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
)

// delivery is a message, from its receive until it is deleted or returned. These files handle it, in this order:
//
//	subscriber.go, consume.go    start readers, each with an engine
//	intake.go                    pollers receive messages while the engine takes more
//	groups.go                    when pollers look for the next message of a FIFO group
//	source.go                    registers, settles and returns messages
//	internal/wire                separates the user's part from redeliver's
//	arrive.go                    decides the next step
//	visibility.go, heartbeat.go  keep it hidden from others, or find it lost
//	codec.go                     shows it to the handler and the policy
//	store.go                     writes its copy
//	deleter.go                   deletes it
//	internal/api                 sends the requests, up to ten messages in each
//	suspects.go                  runs it alone
type delivery struct {
	wire.Record
	visibility

	// Set before the lane gets it.
	source  *source
	id      string           // MessageId, the key in source.held
	group   string           // MessageGroupId of a FIFO queue
	bytes   int              // as SQS counts them
	state   *redeliver.State // brought by the message or remembered by this process; nil for a first delivery
	step    driver.Step
	hold    bool // wait in memory until state.Due
	first   bool // no other message of its group was held when it came
	unknown bool // others may have received it before, and its note is not read
	noted   bool // keptState is from a note
	rewrite bool // rewrite it, because it came back often
	crashes int  // of a suspect: how often its process died while it ran alone

	// For suspects. answered gets one value when the handler has answered or the message is gone. removed is closed
	// when the message is deleted or gone.
	answered, removed chan struct{}

	deletion deletion

	// For a message that goes to the DLQ in parts. Only one write at a time uses these.
	partSize     int  // of the parts that the DLQ accepts
	bare         bool // the parts have none of the message's attributes
	partsWritten int  // parts that the DLQ has

	// The source's lock guards the fields below.
	m         *driver.Message[*delivery] // the lane's message; nil before Parse
	keptState *redeliver.State           // the state with which it waits hidden
	receives  int                        // as SQS counts them
	settled   bool                       // but not yet deleted
	gone      bool                       // deleted, returned or lost
	suspect   bool                       // written to the queue of suspects
	onDeleted func()                     // called when it is deleted; may be nil
}

// signalAnswered signals d.answered, if d is a suspect.
func (d *delivery) signalAnswered() {
	select {
	case d.answered <- struct{}{}:
	default:
	}
}
