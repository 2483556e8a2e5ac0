package amqp

import (
	"errors"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// drain is the end of a lane whose subscription ends: what is in flight may
// finish within the drain timeout; the rest goes back to the queue with the
// channel.
func (l *lane) drain() {
	l.r.sub.Drain.Begin()
	defer l.r.sub.Drain.End()
	if l.next != nil {
		l.end(l.next, delayqueue.Abandoned)
		l.next = nil
	}
	given := l.stopReading()
	l.poll()
	l.flush(true)
	deadline := time.NewTimer(l.r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	look := time.NewTicker(delayqueue.Glance)
	defer look.Stop()
	lying := -1
	for waiting := true; waiting && l.flight.Len() > 0; {
		if given {
			l.giveBack()
			given = false
		}
		l.poll()
		l.flight.Watch()
		select {
		case landed := <-l.flight.Landings():
			l.end(landed.E, landed.How)
		case <-look.C:
			given = l.kind != suspectQueue
			if n := len(l.r.out); n > 0 && n == lying { // nobody takes them
				l.pullBack()
			} else {
				lying = n
			}
		case <-deadline.C:
			waiting = false
		}
	}
	if l.kind == suspectQueue {
		if l.flight.Len() == 0 && l.ready.Empty() {
			if d, ok := <-l.in; ok { // it was being fetched when the end came
				l.take(d)
			}
		}
		l.acquit()
	}
	l.flush(true)
	l.over(errDrained)
	_ = l.ch.Close() // what is not acked goes back with it, also when this fails
}

// stopReading ends the consumer; what the broker has sent meanwhile is taken.
// Suspects come one by one, and go back by acquit.
func (l *lane) stopReading() bool {
	if l.kind == suspectQueue || l.ch.Cancel(consumerTag, false) != nil {
		return false // or the channel is gone
	}
	for d := range l.in {
		l.take(d)
	}
	return true
}

// atOnce is how many messages are handed back at once, each by a command of its
// own. A quorum queue takes 32 commands of a channel before it has written them;
// those behind wait in the channel, and an ack among them is lost with it.
const atOnce = 16

// giveBack returns to the queue what no handler has, some at a time. What is in
// flight may take as long as it likes, and who waited here may be due meanwhile.
// The rest goes back with the channel.
func (l *lane) giveBack() {
	idle := make([]*entry, 0, atOnce)
	for e := range l.acks.untold {
		if e.what == open && !l.flight.Has(e) {
			idle = append(idle, e)
		}
		if len(idle) == atOnce {
			break
		}
	}
	for _, e := range idle {
		if l.ch.Nack(e.tag, false, true) != nil {
			return
		}
		l.r.client.turn.Known.Add(l.idOf(e))
		l.acks.handedBack(e)
	}
}

// pullBack takes back the messages that lie ready and that nobody has taken, of
// whichever lane they are.
func (l *lane) pullBack() {
	for {
		select {
		case msg := <-l.r.out:
			if rec, ok := delayqueue.FromContext(msg.Context()).Record.(*record); ok { // all of ours are
				go rec.entry.Moved(false) // a lane that waited here could not listen
			}
		default:
			return
		}
	}
}

// abandon is the end of a lane whose channel is gone: all that it has in hand
// comes back, to this process or another.
func (l *lane) abandon() error {
	for e := range l.acks.untold {
		l.r.client.turn.Known.Add(l.idOf(e))
	}
	l.next = nil
	l.over(errLost)
	select {
	case err := <-l.closed:
		if err != nil {
			return err
		}
	case tag := <-l.gone:
		l.flush(true)
		_ = l.ch.Close() // the consumer is gone, the channel is of no use
		if tag != "" {
			return errors.New("the broker cancelled the consumer: the queue was deleted, or its leader moved")
		}
	case <-time.After(time.Second):
	}
	return errLost
}

// over ends what is left in flight.
func (l *lane) over(cause error) {
	l.cancel(cause)
	l.flight.Close()
	l.unslot()
	for e := range l.flight.All {
		l.leave(e)
	}
}
