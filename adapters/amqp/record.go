package amqp

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// record is a delivery as the handler sees it first: without redeliver's headers, and with the original exchange,
// routing key and properties. Only the source acks it.
type record struct {
	amqp091.Delivery
	unread error  // why its headers could not be read
	raw    []byte // the unreadable headers, unless they are too long
	keys   statekeys.Keys
	copies int    // see headerCopies
	part   string // see headerPart
	// Of a message that is read from a DLQ: the state that it had there, and its delivery there, which copies keep.
	deadLetter *redeliver.State
	copied     *amqp091.Delivery
}

// own returns the delivery that copies are made of.
func (r *record) own() *amqp091.Delivery {
	if r.copied != nil {
		return r.copied
	}
	return &r.Delivery
}

// stateID returns the message's id. A message that is read from a DLQ has the one of the DLQ's state.
func (r *record) stateID() string {
	if r.deadLetter != nil && r.deadLetter.ID != "" {
		return r.deadLetter.ID
	}
	return idOf(&r.Delivery)
}

// readDeadLetter removes redeliver's headers of a DLQ from a message that is read from there, and restores what they
// replace. It ignores headers that name another DLQ. dlqOf returns the DLQ of a queue.
func (r *record) readDeadLetter(queue string, dlqOf func(queue string) string) []redeliver.Finding {
	if _, ours := r.Headers[redeliver.HeaderGroup]; !ours || r.unread != nil || !verify(r.keys, &r.Delivery) {
		return nil
	}
	if from := lastDeathQueue(r.Headers); from != "" && dlqOf(from) == queue {
		delete(r.Headers, redeliver.HeaderGroup) // RabbitMQ moved it here with its producer's headers; its copies have no x-death
		return nil
	}
	shown := r.Delivery
	block, findings := restoreOriginal(&shown)
	dead, found := engine.DeadLetterState(block, func(origin, group string) bool {
		return origin == group && dlqOf(origin) == queue
	})
	if dead == nil {
		return nil
	}
	lay := r.Delivery
	r.deadLetter, r.copied, r.Delivery = dead, &lay, shown
	return append(findings, found...)
}

// Get implements [redeliver.Headers]. It returns a header as text, or "".
func (r *record) Get(name string) string {
	text, _ := textOf(r.Headers[name])
	return text
}
