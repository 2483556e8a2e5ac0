package kafka

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// holdMost is the end of all patience: a lane that holds so much does not read
// even what was under way when it paused.
const holdMost = 1 << 20

// receive reads the state of a record on a topic on which messages wait and
// holds it until it may go on.
func (l *lane) receive(e *entry) {
	m := e.rec.ConsumerMessage
	e.written = m.Timestamp.UnixMilli()
	users, ours := split(m.Headers)
	m.Headers = users
	detach(m)
	stay := l.r.arrive(m, ours, *l.waits)
	st := stay.State
	l.r.sub.Met(st)
	if l.lines != nil {
		l.waitLine(e, &stay)
	}
	m.Partition, m.Offset = -1, -1
	if st.Source.Known {
		m.Partition, m.Offset = st.Source.Partition, st.Source.Offset
	}
	m.Timestamp = st.Source.Timestamp
	m.Topic = l.r.layout.origin
	if len(stay.Findings) > 0 {
		l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: st.ID, Findings: stay.Findings})
	}
	if stay.Publish {
		e.last = toOrigin
	}
	e.then = e.last
	if stay.Hops {
		e.then = toLevel
	}
	e.state = st
	if l.isReleased(e) {
		stay.Until = e.makeDue(time.Now())
	}
	l.hold.Put(stay.Until, e) // never full: see listens
}

// release lets go what has waited long enough.
func (l *lane) release(now time.Time) {
	for {
		e, ok := l.hold.Pop(now)
		if !ok {
			return
		}
		if e.then == toLevel && e.state.Due.Sub(now) <= l.r.jitter && l.hold.Len() < holdSoft/2 {
			// What remains is jitter. While there is room it is waited for
			// here: a hop would only bring it to a place like this.
			e.then = e.last
			l.hold.Put(e.state.Due, e)
			continue
		}
		l.enqueue(e)
	}
}

// pass moves an entry on that no handler is to see now: to a level, or, a delayed
// publish that is due, to its topic. What that refuses for good goes to the DLQ.
func (l *lane) pass(e *entry) {
	e.d = l.delivery(e)
	sub, st := l.r.sub, e.state
	if e.then == toLine {
		waiting := e.d.State()
		waiting.Due = e.until
		st = &waiting
	}
	go func() {
		how := delayqueue.Forwarded
		dec := &redeliver.Decision{Action: redeliver.RetryLater, State: *st}
		where, err := sub.PersistDecision(e.d, dec, func(ctx context.Context) (string, error) {
			return l.r.fwd.onward(ctx, e, st)
		})
		switch {
		case err != nil:
			how = delayqueue.Abandoned
		case dec.Action == redeliver.DeadLetter:
			e.went.buried = true
			sub.Tell(redeliver.DeadLettered{State: dec.State, Where: where, Err: redeliver.ErrUnschedulable})
		case e.then == toOrigin:
			sub.Tell(redeliver.Published{State: *st, Topic: where})
		default:
			sub.Tell(redeliver.Hopped{State: *st, From: l.topic, To: where})
		}
		l.flight.Report(e, how)
	}()
}
