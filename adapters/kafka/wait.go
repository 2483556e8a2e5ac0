package kafka

import (
	"context"
	"errors"
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
	m := &e.rec.ConsumerMessage
	users, ours := split(m.Headers)
	m.Headers = users
	detach(m)
	st, findings := parseState(l.r.layout.group, ours)
	if len(ours) == 0 {
		findings = append(findings, redeliver.Finding{Header: redeliver.HeaderAttempt, Problem: "is missing on a topic of redeliver's; the message counts as new"})
	}
	// A block that is not whole may still say when the message is due; it may
	// not send the message anywhere but to its own group's handler.
	whole := len(findings) == 0
	// Nothing was written later than now: another clock must not hold a message
	// whose own due time is lost.
	written := m.Timestamp
	if now := time.Now(); written.After(now) {
		written = now
	}
	if st.ID == "" {
		st.ID = uuidOf(m)
	}
	m.Partition, m.Offset = -1, -1
	if st.Source.Known {
		m.Partition, m.Offset = st.Source.Partition, st.Source.Offset
	}
	m.Timestamp = st.Source.Timestamp
	m.Topic = l.r.layout.origin
	st.Group, st.Origin = l.r.layout.group, l.r.layout.origin

	if most := l.longest(st, written); st.Due.After(most) {
		findings = append(findings, redeliver.Finding{
			Header: redeliver.HeaderDue, Value: st.Due.Format(time.RFC3339Nano),
			Problem: "is later than anything on this topic can be; the end of its level is taken",
		})
		st.Due = time.Time{}
	}
	if len(findings) > 0 {
		l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.topic, ID: st.ID, Findings: findings})
	}
	end := written.Add(l.waits.level)
	if st.Due.IsZero() {
		st.Due = redeliver.CeilMilli(end)
	}
	at := st.Due
	if whole && neverDelivered(st) {
		e.last = toOrigin
	}
	e.then = e.last
	// When the level is over and what remains is no shorter than the smallest
	// level, it hops; else it waits here until it is due.
	if _, more := l.r.layout.ladder.Next(st.Due.Sub(end), 0); more {
		at, e.then = end, toLevel
	}
	e.state = &st
	l.hold.Put(at, e) // never full: see listens
}

// neverDelivered tells a delayed publish, which waits for its time to be
// published, from a message that a handler has seen or is to see.
func neverDelivered(st redeliver.State) bool {
	return !st.Source.Known && st.Attempts == 0 && st.Replays == 0 && st.PostponedSince.IsZero() && st.FirstFailed.IsZero()
}

// longest is the latest due time that a record written then can have on this
// topic: with more time left it would be on the next longer level. A record
// that another policy wrote may have had other levels to choose from.
func (l *lane) longest(st redeliver.State, written time.Time) time.Time {
	ours := st.Policy == "" || st.Policy == l.r.sub.Fingerprint()
	if l.waits.level == 0 || l.waits.above == 0 || !ours {
		return written.Add(redeliver.MaxWait)
	}
	return written.Add(l.waits.above + slack)
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

// pass moves an entry on that no handler is to see now: to a shorter level, or,
// a delayed publish that is due, to its topic.
func (l *lane) pass(e *entry) {
	e.d = l.delivery(e)
	sub, st := l.r.sub, e.state
	go func() {
		how := delayqueue.Forwarded
		var buried *redeliver.Decision // a delayed publish that its topic refuses for good
		where, err := sub.Persist(e.d, st, func(ctx context.Context) (string, error) {
			if e.then != toOrigin {
				return l.r.fwd.hop(ctx, e.d, st)
			}
			where, err := l.r.fwd.publish(ctx, e.d)
			if !errors.Is(err, delayqueue.ErrRefused) {
				return where, err
			}
			buried = &redeliver.Decision{State: *st}
			sub.Policy.Unschedulable(buried, err)
			return l.r.fwd.DeadLetter(ctx, e.d, &buried.State)
		})
		switch {
		case err != nil:
			how = delayqueue.Abandoned
		case buried != nil:
			sub.Tell(redeliver.DeadLettered{State: buried.State, Where: where, Err: redeliver.ErrUnschedulable})
		case e.then == toOrigin:
			sub.Tell(redeliver.Published{State: *st, Topic: where})
		default:
			sub.Tell(redeliver.Hopped{State: *st, From: l.topic, To: where})
		}
		l.flight.Report(e, how)
	}()
}
