package sqs

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// delivery is one received message, from its receive until it is deleted or returned. The files in the order of its
// life:
//
//	subscriber.go, consume.go    start readers, each with an engine
//	intake.go, receive.go        pollers receive messages while the engine takes more
//	groups.go                    when pollers look for the next message of a FIFO group
//	source.go                    registers, settles and returns messages
//	record.go, state.go          separate the user's part from redeliver's
//	arrive.go                    decides the next step
//	visibility.go, heartbeat.go  keep it hidden from others, or find it lost
//	codec.go                     shows it to the handler and the policy
//	store.go, fit.go, sender.go  write its copy
//	deleter.go                   deletes it
//	batch.go                     gathers the entries of one request
//	suspects.go                  runs it alone
type delivery struct {
	record
	visibility

	// Set before the lane gets it.
	source  *source
	id      string           // MessageId, the key in source.held
	group   string           // MessageGroupId of a FIFO queue
	bytes   int              // as SQS counts them
	state   *redeliver.State // brought by the message or remembered by this process; nil for a first delivery
	step    driver.Step
	hold    bool // wait in memory until state.Due
	rewrite bool // rewrite it, because it came back often
	crashes int  // of a suspect: how often its process died while it ran alone

	// For suspects. closed is closed when the message is settled or gone, removed when it is deleted. copying gets
	// one value when its copy is about to be written.
	closed, removed, copying chan struct{}

	deletion deletion

	// For a message that goes to the DLQ in parts. Only one write at a time uses these.
	partSize     int  // of the parts that the DLQ accepts
	bare         bool // the parts have none of the message's attributes
	partsWritten int  // parts that the DLQ has

	// The source's lock guards the fields below.
	m         *driver.Message[*delivery] // the lane's message; nil before Parse
	keptState *redeliver.State           // the state with which it waits hidden
	settled   bool                       // but not yet deleted
	gone      bool                       // deleted, returned or lost
	suspect   bool                       // written to the queue of suspects
}

// newDeliveries allocates the deliveries of one receive, small ones as one slab. A slab lives as long as any of its
// messages, so large messages get separate allocations.
func newDeliveries(msgs []types.Message) []*delivery {
	bytes := 0
	for i := range msgs {
		bytes += len(aws.ToString(msgs[i].Body))
	}
	all := make([]*delivery, len(msgs))
	if bytes > maxSlabBytes {
		for i := range all {
			all[i] = new(delivery)
		}
		return all
	}
	slab := make([]delivery, len(msgs))
	for i := range slab {
		all[i] = &slab[i]
	}
	return all
}

const maxSlabBytes = 64 << 10

// sizeOf returns the size of a message as SQS counts it.
func sizeOf(m *types.Message) int {
	n := len(aws.ToString(m.Body))
	for name, v := range m.MessageAttributes {
		n += attributeSize(name, v)
	}
	return n
}
