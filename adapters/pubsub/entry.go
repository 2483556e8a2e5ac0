package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// entry is a message on its way through a lane.
type entry struct {
	r     *reader
	rec   *record
	state *redeliver.State // what it brought from a topic that redeliver writes
	d     *delayqueue.Delivery

	lost   context.Context // its end: the message is lost to this process
	cancel context.CancelCauseFunc
	stop   func() bool
}

// skew is how far ahead of this host's clock may be that of the one that let a
// message go, which has reached its due time there.
const skew = time.Second

var errGone = errors.New("the subscriber has taken the message back")

// newEntry makes an entry, whose context ends when the subscriber takes the message
// back or the reader gives up.
func (r *reader) newEntry(raw *message.Message, rec *record, st *redeliver.State) *entry {
	e := &entry{r: r, rec: rec, state: st}
	e.lost, e.cancel = context.WithCancelCause(context.WithoutCancel(raw.Context()))
	e.stop = context.AfterFunc(raw.Context(), func() { e.cancel(errGone) })
	r.mu.Lock()
	r.live[e] = struct{}{}
	over := r.ctx.Err() != nil
	r.mu.Unlock()
	r.inHand.Add(1)
	if over {
		e.cancel(errClosed)
	}
	e.d = &delayqueue.Delivery{Sub: r.sub, Record: rec, Waited: st, ID: rec.id()}
	if st != nil {
		e.d.ID, e.d.Source = st.ID, st.Source
	}
	e.d.Begin(e.lost)
	return e
}

// giveUp ends the contexts of all that is in flight, in one go: what waits for
// others, in a batch, must not run because those were ended long before it.
func (r *reader) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel(errClosed)
	for e := range r.live {
		e.cancel(errClosed)
	}
}

// end is the end of its way: whatever becomes of the subscriber's own context now,
// the message was not lost.
func (e *entry) end() {
	e.stop()
	e.r.mu.Lock()
	delete(e.r.live, e)
	e.r.mu.Unlock()
	e.r.inHand.Add(-1)
	e.d.End(nil)
}

// load is what is in hand. It takes no lock: mu is held while the sink is told, which may
// ask under a lock that it takes to be told.
func (r *reader) load() redeliver.Load {
	running := int(r.running.Load())
	return redeliver.Load{InFlight: running, Held: max(0, int(r.inHand.Load())-running)}
}

// deliver has a handler run for a message, and tells whether it is settled: acked,
// or on its way elsewhere.
func (l *lane) deliver(ctx context.Context, raw *message.Message) bool {
	e := l.r.read(l, raw)
	defer e.end()
	if st := e.state; st != nil && time.Until(st.Due) > skew {
		st.Policy = l.r.layout.print // it goes on by this one's levels
		return l.move(e, e.rec, st, false)
	}
	if !e.begin(ctx) {
		return false
	}
	l.r.running.Add(1)
	defer l.r.running.Add(-1)
	how := delayqueue.Abandoned
	defer func() { l.r.sub.Throttle.Leave(e.d, how) }()
	if how = e.run(ctx, l); how == delayqueue.Acked && !e.d.Forwarded() {
		l.r.sub.Committed(e.d)
	}
	return how == delayqueue.Acked || how == delayqueue.Forwarded
}

// run hands a message out, and tells what became of it: Acked where its handler, or
// Retry, has acked it.
func (e *entry) run(ctx context.Context, l *lane) delayqueue.Ending {
	msg, err := e.rec.Message()
	if err != nil {
		err = &redeliver.UndecodableError{Err: err}
		return e.forward(l.r.sub.Decide(e.d.State(), err, time.Now()), err)
	}
	msg.SetContext(e.d)
	select {
	case l.r.out <- msg:
	case <-ctx.Done():
		return delayqueue.Abandoned
	case <-e.lost.Done():
		return delayqueue.Abandoned
	}
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-e.lost.Done():
	}
	select {
	case <-msg.Acked():
		return delayqueue.Acked
	default:
	}
	if e.d.Lost() {
		return delayqueue.Abandoned
	}
	// A message that failed without an error: a publisher of the Router, another
	// middleware. It is an attempt like an error.
	return e.forward(l.r.sub.DecideNack(e.d, l.r.client.cfg.NackDelay, time.Now()))
}

// read makes the entry of a message for a handler, and believes what stands in our
// entry of it where redeliver writes, as far as it can be right.
func (r *reader) read(l *lane, raw *message.Message) *entry {
	rec, c := newRecord(raw, l.kind != originLane, r.client.cfg.Decode)
	if l.kind == originLane {
		e := r.newEntry(raw, rec, nil)
		if found := rec.strangers(); found != nil {
			r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: e.d.ID, Findings: found})
		}
		return e
	}
	now := time.Now()
	a := delayqueue.Arrival{Group: r.layout.group, Origin: r.layout.topic, Written: now, Now: now}
	var headers []redeliver.Header
	if c != nil {
		headers = c.headers
	}
	stay := delayqueue.Arrive(&a, headers, rec.id)
	st, found := stay.State, stay.Findings
	r.sub.Met(st)
	if len(found) > 0 {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: st.ID, Findings: found})
	}
	return r.newEntry(raw, rec, st)
}

// begin waits until a handler may run, and takes room for it in the throttle. It is
// false when the message is to be given back instead.
func (e *entry) begin(ctx context.Context) bool {
	if e.state != nil && !e.sleep(ctx, e.state.Due) {
		return false
	}
	if !e.r.sub.Gate.Closed() && !e.r.sub.Throttle.Bounds() {
		return ctx.Err() == nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.lost, cancel)
	defer stop()
	return e.r.open(ctx) && e.r.sub.Throttle.Enter(ctx, e.d)
}

// sleep waits until a time has come. It is false when ctx, or the message, has
// ended before.
func (e *entry) sleep(ctx context.Context, until time.Time) bool {
	for {
		left := time.Until(until)
		if left <= 0 {
			return ctx.Err() == nil && e.lost.Err() == nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C: // and look again: the clock may have been set
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-e.lost.Done():
			timer.Stop()
			return false
		}
	}
}

// forward does what a decision says, for as long as the message is ours.
func (e *entry) forward(dec *redeliver.Decision, cause error) delayqueue.Ending {
	if e.until(func() error { return e.r.sub.Forward(e.d, dec, cause) }) {
		return delayqueue.Forwarded
	}
	return delayqueue.Abandoned
}

// until waits for do, but no longer than the message is ours. It tells whether do
// has succeeded.
func (e *entry) until(do func() error) bool {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err == nil
	case <-e.lost.Done():
		return false
	}
}
