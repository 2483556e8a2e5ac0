package wire

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// Record is a delivery as the handler sees it first: without redeliver's headers, and with the original exchange,
// routing key and properties. Only the source acks it.
type Record struct {
	amqp091.Delivery
	Unreadable error  // why its headers could not be read
	Raw        []byte // the unreadable headers, unless they are too long
	Keys       statekeys.Keys
	Copies     int    // see headerCopies
	Part       string // see HeaderPart
	// Of a message that is read from a DLQ: the state that it had there, and its delivery there, which copies keep.
	DeadLetter *redeliver.State
	Copied     *amqp091.Delivery
}

// Own returns the delivery that copies are made of.
func (r *Record) Own() *amqp091.Delivery {
	if r.Copied != nil {
		return r.Copied
	}
	return &r.Delivery
}

// StateID returns the message's id. A message that is read from a DLQ has the one of the DLQ's state.
func (r *Record) StateID() string {
	if r.DeadLetter != nil && r.DeadLetter.ID != "" {
		return r.DeadLetter.ID
	}
	return IDOf(&r.Delivery)
}

// ReadDeadLetter removes redeliver's headers of a DLQ from a message that is read from there, and restores what they
// replace. It ignores headers that name another DLQ. dlqOf returns the DLQ of a queue.
func (r *Record) ReadDeadLetter(queue string, dlqOf func(queue string) string) []redeliver.Finding {
	if _, ours := r.Headers[redeliver.HeaderGroup]; !ours || r.Unreadable != nil || !verify(r.Keys, statekeys.DeadLetter, &r.Delivery) {
		return nil
	}
	if from := LastDeathQueue(r.Headers); from != "" && dlqOf(from) == queue {
		delete(r.Headers, redeliver.HeaderGroup) // RabbitMQ moved it here with its producer's headers; its copies have no x-death
		return nil
	}
	shown := r.Delivery
	block, findings := RestoreOriginal(&shown)
	dead, found := engine.DeadLetterState(block, func(origin, group string) bool {
		return origin == group && dlqOf(origin) == queue
	})
	if dead == nil {
		return nil
	}
	written := r.Delivery
	r.DeadLetter, r.Copied, r.Delivery = dead, &written, shown
	return append(findings, found...)
}

// Get implements [redeliver.Headers]. It returns a header as text, or "".
func (r *Record) Get(name string) string {
	text, _ := TextOf(r.Headers[name])
	return text
}
