package sqs

import (
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// end takes an entry out of flight.
func (l *lane) end(e *entry, how delayqueue.Ending) {
	if how == delayqueue.Nacked && l.flight.Has(e) {
		l.nack(e)
		return
	}
	if !l.flight.Land(e, how) {
		return // it was given up
	}
	l.leave(e)
	t := e.ticket
	switch {
	case how == delayqueue.Abandoned && l.kind == suspectQueue && l.stopping: // see acquit
	case how == delayqueue.Abandoned && e.unrun.Load():
		l.handBack(t, time.Time{})
	case how == delayqueue.Abandoned:
		l.comesBack(t)
	case how == delayqueue.Forwarded && e.stays.Load() != nil:
		l.stay(e, e.stays.Load())
	default:
		if how == delayqueue.Forwarded {
			l.depart(e)
		}
		t.suspect = e.then == toSuspects
		l.settle(t)
	}
	l.count()
}

// leave gives back what an entry in flight held.
func (l *lane) leave(e *entry) {
	l.running[e.class()]--
	e.rest()
	if l.kind != suspectQueue {
		return
	}
	select {
	case l.landed <- struct{}{}:
	default: // its turn was over already
	}
}

// settle has a message deleted, and the next of its group run. That one does not
// wait for the deletion: a process that dies in between runs both again, in order.
func (l *lane) settle(t *ticket) {
	if l.tickets[t.id] != t || t.entry == nil {
		return
	}
	t.entry = nil
	l.settled++
	l.deleter.add(t)
	l.step(t)
}

// gone drops a message that is deleted, or no longer ours.
func (l *lane) gone(d *deletion) {
	if d.receipt != d.t.handle() && d.t.Err() == nil {
		// It came again while it was being deleted: SQS may have said that it is
		// deleted and have done nothing, as the receipt was not the latest.
		l.deleter.batches.add(d)
		return
	}
	l.settled--
	if d.err == nil {
		l.r.client.turn.Known.Settled(d.t.id)
	}
	if d.t.suspect {
		// Only now is it to run: a process that dies of it before its source is
		// deleted would leave that as well.
		select {
		case l.r.poke <- struct{}{}:
		default:
		}
	}
	l.drop(d.t)
	l.count()
}

// drop forgets a message.
func (l *lane) drop(t *ticket) {
	if l.tickets[t.id] == t {
		delete(l.tickets, t.id)
		l.bytes -= t.bytes
		l.groups.release(t.group)
	}
	if t.parting == 0 {
		t.End(nil)
	}
	if l.kind == suspectQueue {
		select {
		case l.cleared <- struct{}{}:
		default:
		}
	}
}

// comesBack is the end of a message that was not settled: SQS shows it again.
func (l *lane) comesBack(t *ticket) {
	if l.tickets[t.id] != t {
		return
	}
	l.lose(t)
}

// lose drops a message that others may have by now, and all behind it in its
// group, which must not overtake it.
func (l *lane) lose(t *ticket) {
	if e := t.entry; e != nil && e.state != nil && e.inPlace {
		l.r.client.memory.Put(t.id, e.state)
	}
	l.r.client.turn.Known.Add(t.id)
	t.entry = nil
	t.End(errLost)
	l.drop(t)
	l.breakLine(t)
}
