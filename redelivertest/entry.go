package redelivertest

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// entry is an item on its way through a reader.
type entry struct {
	delayqueue.Seat

	r    *reader
	it   *item
	rec  *delivered
	then then // what to do when its time has come
	died int  // how often its process died while it ran alone

	suspect bool // as it left; item.suspect needs the broker's mu

	state *redeliver.State     // what it brought from where messages wait
	d     *delayqueue.Delivery // made when it leaves for the handler
	msg   *message.Message
}

// then is what is to be done with an entry.
type then uint8

const (
	toHandler then = iota
	toLevel        // hop to a shorter level
	toOrigin       // a delayed publish is due
)

// Delivery implements [delayqueue.Flyer].
func (e *entry) Delivery() *delayqueue.Delivery { return e.d }

// Handed implements [delayqueue.Flyer].
func (e *entry) Handed() *message.Message { return e.msg }

// Moved implements [delayqueue.Mover].
func (e *entry) Moved(forwarded bool) {
	how := delayqueue.Abandoned
	if forwarded {
		how = delayqueue.Forwarded
	}
	e.r.flight.Report(e, how)
}

// prepare makes sure that next stands, if something may run.
func (r *reader) prepare(now time.Time) {
	r.release(now)
	for r.next == nil && !r.sub.Gate.Closed() && r.flight.Room() {
		e := r.choose()
		if e == nil {
			r.flight.Yield()
			return
		}
		r.flight.Begin(e)
		e.d = r.delivery(e)
		switch {
		case e.then != toHandler:
			go r.pass(e)
		case e.died >= r.sub.Policy.MaxCrashes:
			r.forward(e, &redeliver.CrashedError{Times: e.died})
		default:
			msg, err := e.rec.Message()
			if err != nil {
				r.forward(e, &redeliver.UndecodableError{Err: err})
				continue
			}
			msg.SetContext(e.d)
			e.msg, r.next = msg, e
		}
	}
}

// choose puts the next entry in flight: what has waited comes first.
func (r *reader) choose() *entry {
	b := r.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.retries < r.client.cfg.MaxInFlight && !r.due.Empty() {
		var chosen *entry
		r.due.Delete(func(e *entry) bool {
			if chosen != nil || !r.q.begin(e.it, r) {
				return false
			}
			chosen, e.died, e.suspect = e, e.it.crashes, e.it.suspect
			return true
		})
		if chosen != nil {
			return chosen
		}
	}
	it := r.q.first(r)
	if it == nil {
		return nil
	}
	rec := &delivered{it.record, it, it.idOf(r.q.topic, it.offset), r.client.cfg.Decode}
	return &entry{r: r, it: it, died: it.crashes, suspect: it.suspect, rec: rec}
}

// delivery makes an entry's context and what the middlewares need to know.
func (r *reader) delivery(e *entry) *delayqueue.Delivery {
	d := &delayqueue.Delivery{Sub: r.sub, Record: e.rec, Waited: e.state, Mover: e, ID: e.rec.id, Alone: e.suspect}
	if e.state != nil {
		d.Source = e.state.Source
	} else {
		d.Source = redeliver.Source{Known: true, Offset: e.it.offset, Timestamp: e.it.at}
		if found := e.rec.strangers(); found != nil {
			r.sub.Tell(redeliver.HeadersIgnored{Topic: r.q.topic, ID: d.ID, Findings: found})
		}
	}
	d.Begin(r.ctx)
	return d
}

// land takes an entry out of flight.
func (r *reader) land(e *entry, how delayqueue.Ending) {
	if how == delayqueue.Nacked && r.flight.Has(e) && !e.d.Lost() {
		// A message that failed without an error: a publisher of the Router,
		// another middleware. It is an attempt like an error.
		dec, cause := r.sub.DecideNack(e.d, r.client.cfg.NackDelay, time.Now())
		go func() { e.Moved(r.sub.Forward(e.d, dec, cause) == nil) }()
		return
	}
	if !r.flight.Land(e, how) {
		return
	}
	if how == delayqueue.Acked || how == delayqueue.Forwarded {
		r.q.settle(e.it, r)
	} else {
		r.q.giveBack(e.it, r)
	}
}

// forward does what the policy says of a failure that no handler has seen.
func (r *reader) forward(e *entry, cause error) {
	dec := r.sub.Decide(e.d.State(), cause, time.Now())
	go func() { e.Moved(r.sub.Forward(e.d, dec, cause) == nil) }()
}

// pass moves an entry on that no handler is to see now: to a shorter level, or,
// a delayed publish that is due, to its topic.
func (r *reader) pass(e *entry) {
	where, err := r.sub.Persist(e.d, e.state, func(ctx context.Context) (string, error) {
		if e.then == toOrigin {
			return r.fwd.publish(e.d)
		}
		return r.fwd.hop(ctx, e.d, e.state)
	})
	switch {
	case err != nil:
	case e.then == toOrigin:
		r.sub.Tell(redeliver.Published{State: *e.state, Topic: where})
	default:
		r.sub.Tell(redeliver.Hopped{State: *e.state, From: e.it.where, To: where})
	}
	e.Moved(err == nil)
}
