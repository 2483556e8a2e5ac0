package amqp

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// acks records the unacked deliveries of a channel in order of arrival, and which acks must be sent. A slow delivery
// costs no memory for later ones. Only the lane's goroutine uses it.
type acks struct {
	oldest, newest *delivery   // deliveries without an ack
	behindOpen     []*delivery // settled behind an unsettled one
	settled        int         // settled deliveries without an ack
	unacked, bytes int         // all deliveries without an ack, and their sizes
}

// ackEntry is a delivery's entry in acks.
type ackEntry struct {
	before, after *delivery
	ackState      ackState
}

type ackState uint8

const (
	ackOpen    ackState = iota // not settled
	ackSettled                 // settled, but the ack is not sent
	ackSent                    // acked or returned
)

// add adds the newest delivery of its channel.
func (a *acks) add(e *delivery) {
	a.unacked, a.bytes = a.unacked+1, a.bytes+e.size
	e.before, a.newest = a.newest, e
	if e.before == nil {
		a.oldest = e
	} else {
		e.before.after = e
	}
}

// settle marks a delivery as settled.
func (a *acks) settle(e *delivery) {
	if e.ackState != ackOpen {
		return
	}
	e.ackState = ackSettled
	a.settled++
	if e != a.oldest {
		a.behindOpen = append(a.behindOpen, e)
	}
}

// remove removes a delivery that was acked, or returned to the broker.
func (a *acks) remove(e *delivery) {
	a.unacked, a.bytes = a.unacked-1, a.bytes-e.size
	if e.before == nil {
		a.oldest = e.after
	} else {
		e.before.after = e.after
	}
	if e.after == nil {
		a.newest = e.before
	} else {
		e.after.before = e.before
	}
	if e.ackState == ackSettled {
		a.settled--
	}
	e.ackEntry = ackEntry{ackState: ackSent}
	// The slabs of deliveries overlap those of the engine, whose entries point back. Through this pointer each slab of a
	// channel would keep the next one in memory.
	e.m = nil
}

// flush sends acks. One ack covers the settled deliveries below the lowest unsettled one. Each later one gets its own
// ack, if there are enough of them or force is set.
func (a *acks) flush(enough int, force bool, ack func(tag uint64, multiple bool) error) error {
	n, last := 0, uint64(0)
	for e := a.oldest; e != nil && e.ackState == ackSettled; e = e.after {
		n, last = n+1, e.tag
	}
	if n > 0 {
		if err := ack(last, n > 1); err != nil {
			return err
		}
	}
	for range n {
		a.remove(a.oldest)
	}
	if a.settled >= enough || force {
		for _, e := range a.behindOpen {
			if e.ackState != ackSettled {
				continue
			}
			if err := ack(e.tag, false); err != nil {
				return err
			}
			a.remove(e)
		}
	}
	if a.settled == 0 {
		clear(a.behindOpen)
		a.behindOpen = a.behindOpen[:0]
	}
	return nil
}

// pending returns the number of settled deliveries without an ack.
func (a *acks) pending() int { return a.settled }

// open returns the number of unsettled deliveries.
func (a *acks) open() int { return a.unacked - a.settled }

// unsent yields every delivery without an ack, oldest first. The yielded ones may be settled meanwhile.
func (a *acks) unsent(yield func(*delivery) bool) {
	for e := a.oldest; e != nil; e = e.after {
		if !yield(e) {
			return
		}
	}
}

// confirmAcks waits until a queue has every ack of a channel, so that the channel can be closed. AMQP does not
// answer acks. A quorum queue accepts 32 commands of a channel until it has written them to its log. The channel
// keeps later acks (rabbit_fifo_client); if it is closed then, their messages come back. So confirmAcks starts and
// ends a consumer. The channel answers each only when the queue has applied it and all commands before. At the first
// answer the channel has sent the kept acks as one command; at the second the queue has applied it.
//
// The consumer delivers at most one message, the head of the queue. The broker counts that as a delivery, and may drop
// the message if it is returned too often.
func confirmAcks(ch *amqp091.Channel, queue string) (head *amqp091.Delivery, err error) {
	const tag = link.ConsumerTag + "-acks"
	in, err := link.StartConsumer(ch, queue, tag, 1)
	if err != nil {
		return nil, err
	}
	if err := link.StopConsumer(ch, tag); err != nil {
		return nil, err
	}
	for d := range in { // until the consumer has ended
		head = &d
	}
	return head, nil
}
