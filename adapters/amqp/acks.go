package amqp

import amqp091 "github.com/rabbitmq/amqp091-go"

// acks knows of each delivery of a channel that the broker waits for, in the
// order in which they came, and what the broker must be told of it. A slow
// delivery costs no memory for those that pass it. It belongs to the channel's
// one goroutine.
type acks struct {
	oldest, newest *delivery   // deliveries of which the broker was not told
	late           []*delivery // settled behind an open one
	n              int         // settled deliveries that the broker was not told of
	len, bytes     int         // all of which it was not told, and their bodies
}

// acked is where a delivery stands in acks.
type acked struct {
	before, after *delivery
	what          answered
}

type answered uint8

const (
	open    answered = iota // in hand
	settled                 // the broker is to be told
	told                    // acked or handed back
)

// add registers a delivery, the newest of its channel.
func (a *acks) add(e *delivery) {
	a.len, a.bytes = a.len+1, a.bytes+len(e.Body)
	e.before, a.newest = a.newest, e
	if e.before == nil {
		a.oldest = e
	} else {
		e.before.after = e
	}
}

// settle notes that a delivery is settled.
func (a *acks) settle(e *delivery) {
	if e.what != open {
		return
	}
	e.what = settled
	a.n++
	if e != a.oldest {
		a.late = append(a.late, e)
	}
}

// handedBack notes that the broker was given an open delivery back.
func (a *acks) handedBack(e *delivery) { a.remove(e) }

func (a *acks) remove(e *delivery) {
	a.len, a.bytes = a.len-1, a.bytes-len(e.Body)
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
	if e.what == settled {
		a.n--
	}
	e.acked = acked{what: told}
}

// flush tells the broker: the settled deliveries below the lowest open one with
// one ack, which never covers another; of the later ones each by itself, where
// there are enough of them or force says so.
func (a *acks) flush(enough int, force bool, ack func(tag uint64, multiple bool) error) error {
	n, last := 0, uint64(0)
	for e := a.oldest; e != nil && e.what == settled; e = e.after {
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
	if a.n >= enough || force {
		for _, e := range a.late {
			if e.what != settled {
				continue
			}
			if err := ack(e.tag, false); err != nil {
				return err
			}
			a.remove(e)
		}
	}
	if a.n == 0 {
		clear(a.late)
		a.late = a.late[:0]
	}
	return nil
}

// pending is how many deliveries are settled and the broker does not know.
func (a *acks) pending() int { return a.n }

// open is how many deliveries are in hand.
func (a *acks) open() int { return a.len - a.n }

// untold yields every delivery that the broker waits for, oldest first. Those
// that it yields may be settled meanwhile.
func (a *acks) untold(yield func(*delivery) bool) {
	for e := a.oldest; e != nil; e = e.after {
		if !yield(e) {
			return
		}
	}
}

// applied returns when a queue has every ack of a channel, which may be closed then. AMQP has no answer to an ack. A quorum
// queue takes 32 commands of a channel until it has written them to its log. The channel keeps later acks (rabbit_fifo_client),
// and if it closes with them, their messages come back. But the channel answers the begin and the end of a consumer only when
// the queue has applied that and everything before it. After the begin the channel has sent the acks that it kept, as one
// command. After the end the queue has applied that command, too.
//
// The consumer is the nth of the channel. It brings at most one message, the head of the queue. The broker counts that as a
// delivery, and may drop the message if it is returned too often.
func applied(ch *amqp091.Channel, queue string, n int) (head *amqp091.Delivery, err error) {
	in, err := read(ch, queue, n, 1)
	if err != nil {
		return nil, err
	}
	if err := ch.Cancel(tag(n), false); err != nil {
		return nil, err // the consumer ends with the channel
	}
	for d := range in { // until the consumer has ended
		head = &d
	}
	return head, nil
}
