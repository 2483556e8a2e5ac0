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
	l.flight.Holds(0) // it is given up
	l.waiting.stop()
	l.callOff()
	pause := l.stopReading()
	l.poll()
	l.flush(true)
	deadline := time.NewTimer(l.r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	look := time.NewTicker(delayqueue.Glance)
	defer look.Stop()
	lying := -1
	for waiting := true; waiting && l.flight.Len() > l.waiting.count(); {
		l.poll()
		l.flight.Watch()
		select {
		case <-l.flight.Bell():
			l.flight.Poll(l.end)
		case <-look.C:
			l.giveBack()
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
				l.take(d, time.Now())
			}
		}
		l.acquit()
	}
	l.over(errDrained)
	l.solos.Wait()
	l.keepPlaces()
	for e := range l.acks.untold {
		if e.what == open {
			l.survived(e)
		}
	}
	l.close(pause)
}

// stopReading ends the consumer; what the broker has sent meanwhile is taken. It
// returns how long the queue is to be given for what it is told: some times what
// it needs for this, which is written like an ack. Suspects come one by one, and
// go back by acquit.
func (l *lane) stopReading() (pause time.Duration) {
	if l.kind == suspectQueue {
		return 0
	}
	if l.ordered { // without a consumer the next one would begin beside what runs here
		return orderedPause
	}
	begun := time.Now()
	_ = l.ch.Cancel(tag(l.consumers), false) // else the channel is gone, and l.in ends too
	pause = min(max(shortest, 4*time.Since(begun)), time.Second)
	for d := range l.in {
		l.take(d, time.Now())
	}
	return pause
}

// atOnce is how many commands for a queue are sent at once. A quorum queue takes
// 32 of a channel before it has written them; those behind wait in the channel,
// and are lost with it: an ack is a duplicate then. On RabbitMQ 3.10 and 4.0, 500
// acks among as many commands to hand back, and a close at once, lost 1 and 275.
const atOnce = 16

// orderedPause is what a queue that keeps its order gets: it was not asked how fast
// it writes.
const orderedPause = 50 * time.Millisecond

// shortest is the least that a queue gets to write what it was told.
const shortest = 10 * time.Millisecond

// close tells the broker the last of a channel, some at a time, and closes it.
// What is not settled is handed back, which would happen with the channel too:
// from RabbitMQ 4.3 on it is not counted like this.
func (l *lane) close(pause time.Duration) {
	defer l.ch.Close()
	n := 0
	err := l.acks.flush(1, true, func(tag uint64, multiple bool) error {
		if n++; n%atOnce == 0 {
			time.Sleep(pause) //nolint:forbidigo // nobody tells when a queue has written an ack
		}
		return l.ch.Ack(tag, multiple)
	})
	if err == nil && l.acks.newest != nil && !l.ordered { // what the channel's end hands back is in order
		err = l.ch.Nack(l.acks.newest.tag, true, true)
	}
	if err == nil {
		time.Sleep(pause) //nolint:forbidigo // the same: there may have been many just before
	}
}

// giveBack returns to the queue what no handler has, some at a time. What is in
// flight may take as long as it likes, and who waited here may be due meanwhile.
// The rest goes back at the end.
func (l *lane) giveBack() {
	if l.kind == suspectQueue || l.ordered {
		return
	}
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
	l.keepPlaces()
	for e := range l.acks.untold {
		l.survived(e)
	}
	l.next = nil
	l.over(errLost)
	select {
	case err := <-l.closed:
		if err != nil {
			return err
		}
	case tag := <-l.gone:
		l.close(shortest) // the consumer is gone, the channel is of no use
		if tag != "" {
			return errors.New("the broker cancelled the consumer: the queue was deleted, or its leader moved")
		}
	case <-time.After(time.Second):
	}
	return errLost
}

// renew is the end of a lane that has kept its messages for too long.
func (l *lane) renew() error {
	l.keepPlaces()
	for e := range l.acks.untold {
		if e.what == open {
			l.survived(e)
		}
	}
	l.over(errTired)
	l.solos.Wait()
	l.close(orderedPause)
	return errTired
}

// survived notes that this process has outlived a delivery that comes back: a suspect is
// not charged for it, and what keeps its place is no suspect. A suspect in its place
// stays one, on classic queues too: its marker goes when it has had a turn, and would be
// there for the next message of the same id otherwise.
func (l *lane) survived(e *entry) {
	if (l.kind == suspectQueue || l.ordered) && e.solo == nil {
		l.r.client.turn.Known.Add(l.idOf(e))
	}
}

// over ends what is left in flight.
func (l *lane) over(cause error) {
	l.cancel(cause)
	l.callOff()
	l.flight.Close()
	l.unslot()
	if l.alone != nil {
		l.alone.quit()
		l.alone = nil
	}
	for e := range l.flight.All {
		l.leave(e)
	}
}
