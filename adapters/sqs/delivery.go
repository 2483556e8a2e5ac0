package sqs

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// delivery is one received message, from its receive until it is deleted or given back. The files in the order of its life:
//
//	subscriber.go, consume.go    who reads, and has an engine
//	intake.go, receive.go        pollers receive it when the engine takes more
//	groups.go                    when they look for the next of a FIFO group
//	source.go                    it comes in hand, and is settled or given back
//	record.go, state.go          what is the user's, and what is redeliver's
//	arrive.go                    what is to be done with it
//	visibility.go, heartbeat.go  it is hidden from others meanwhile, or lost
//	codec.go                     what the handler and the policy see of it
//	store.go, fit.go, sender.go  its copy is written
//	deleter.go                   it is deleted
//	suspects.go                  it runs alone
type delivery struct {
	record
	visibility

	// Set before the lane gets it.
	source  *source
	id      string           // MessageId, under which it is in hand
	group   string           // MessageGroupId of a FIFO queue
	bytes   int              // that SQS counts
	state   *redeliver.State // what it brought, or what this process remembers; nil for a first delivery
	step    driver.Step      //
	hold    bool             // it waits here until state.Due
	rewrite bool             // it is written anew because it has come back often
	crashes int              // of a suspect: how often it was alone when its process died

	// Of a suspect: closed when it is settled or gone, and when it is no longer in its queue. moves has one, once, when its
	// copy is to be written.
	closed, removed, copying chan struct{}

	deletion deletion

	// Of a message that goes to the DLQ in parts; one write at a time uses them.
	partSize     int // of the parts that the DLQ has taken, or may take
	partsWritten int // that the DLQ has

	// The rest is guarded by the source's lock.
	m         *driver.Message[*delivery] // the lane's; nil before Parse
	keptState *redeliver.State           // how it waits in hand
	settled   bool                       // and not yet deleted
	gone      bool                       // it was deleted, given back or lost
	suspect   bool                       // it was written to the queue of suspects
}

// newDeliveries makes room for what a receive has brought. It lives as long as one of them: a message that stays long keeps those
// in memory that came with it. So large ones have none in common.
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

// sizeOf is what SQS counts of a message.
func sizeOf(m *types.Message) int {
	n := len(aws.ToString(m.Body))
	for name, v := range m.MessageAttributes {
		n += attributeSize(name, v)
	}
	return n
}
