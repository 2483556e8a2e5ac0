package amqp

import (
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

const (
	// ackWait is how long a settled delivery waits for others to be acked with it.
	ackWait = 2 * time.Millisecond
	// lateAck is how long it may wait behind an open one before it is acked by
	// itself.
	lateAck = 10 * time.Millisecond
)

// poll settles what was answered since the last look, and tells the broker.
func (l *lane) poll() (busy bool) {
	busy = l.flight.Poll(l.end)
	l.flush(false)
	return busy
}

// flush sends acks, where there are enough of them or they have waited long
// enough: a quorum queue writes every ack to its log. An error means that the
// channel is gone, which shows in l.in.
func (l *lane) flush(force bool) {
	n := l.acks.pending()
	if n == 0 {
		return
	}
	enough := max(1, l.window/2)
	now := time.Now()
	if l.settled.IsZero() {
		l.settled = now
	}
	waited := now.Sub(l.settled)
	if !force && n < enough && waited < ackWait {
		return
	}
	if l.acks.flush(enough, force || waited >= lateAck, l.ch.Ack) != nil {
		return
	}
	if l.acks.pending() == 0 || waited >= lateAck {
		l.settled = time.Time{}
	}
}

// handBack gives back what has lain here unrun for half of the time after which
// the broker would close the channel: slow handlers keep their slots for as long. A
// suspect has its turn and runs at once.
func (l *lane) handBack(now time.Time) {
	limit := l.r.client.cfg.ConsumerTimeout / 2
	if now.Sub(l.swept) < limit/10 || l.kind == suspectQueue {
		return
	}
	l.swept = now
	if l.ordered {
		l.tire(now, limit)
		return
	}
	_ = l.returnUnrun(func(e *entry) bool { return now.Sub(e.arrived) >= limit }) // the channel's end shows in l.in
}

// returnUnrun hands back what has not begun and is wanted back.
func (l *lane) returnUnrun(wanted func(*entry) bool) (err error) {
	back := func(e *entry) bool {
		if err != nil || !wanted(e) {
			return false
		}
		if err = l.ch.Nack(e.tag, false, true); err == nil {
			l.acks.handedBack(e)
		}
		return err == nil
	}
	l.ready.Delete(back)
	l.hold.Delete(back)
	return err
}

// end takes an entry out of flight.
func (l *lane) end(e *entry, how delayqueue.Ending) {
	if how == delayqueue.Nacked && l.flight.Has(e) {
		l.nack(e)
		return
	}
	if !l.flight.Land(e, how) {
		return // it was given up
	}
	if how != delayqueue.Abandoned {
		l.acks.settle(e)
		l.free(e)
		switch {
		case l.kind == suspectQueue || e.solo != nil:
			l.flush(true) // see proven
		case e.again && l.ordered:
			l.r.client.turn.Known.Settled(e.d.ID)
		}
	}
	l.leave(e)
}

// leave gives back what an entry in flight held.
func (l *lane) leave(e *entry) {
	e.unslot()
	e.rest()
	e.quit()
	if l.kind != suspectQueue {
		return
	}
	select {
	case l.landed <- verdict{l.idOf(e), e.what == told}:
	default: // its turn was over already
	}
}
