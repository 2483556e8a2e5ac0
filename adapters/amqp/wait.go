package amqp

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// receive reads the state of a delivery from a queue that we write and holds it
// until it may go on.
func (l *lane) receive(e *entry) {
	d := &e.rec.Delivery
	level, waited := l.waitedOn(d.Headers)
	count, counted := deliveryCount(d.Headers)
	leaves := leaves(d.Headers, e.arrived.Add(l.level))
	ours, findings := original(d)
	st, more := redeliver.ParseHeaders(l.r.layout.queue, ours)
	findings = append(findings, more...)
	if len(ours) == 0 {
		findings = append(findings, redeliver.Finding{Header: redeliver.HeaderAttempt, Problem: "is missing on a queue of redeliver's; the message counts as new"})
	}
	// A block that is not whole may still say when the message is due; it may
	// not send the message anywhere but to its own group's handler. Nor may one
	// that names another place than where this topology publishes.
	delayed := len(findings) == 0 && neverDelivered(st)
	if delayed && !l.r.publishesTo(d.Exchange, d.RoutingKey) {
		findings = append(findings, redeliver.Finding{
			Header: HeaderExchange, Value: redeliver.Cut(place(d.Exchange, d.RoutingKey), 64),
			Problem: "is not where the topology publishes; the message goes to its own handler",
		})
		delayed = false
	}
	if st.ID == "" {
		st.ID = idOf(d)
	}
	st.Group, st.Origin = l.r.layout.queue, l.r.layout.queue
	if most := l.longest(st, level, waited, e.arrived); st.Due.After(most) {
		lie := redeliver.Finding{
			Header: redeliver.HeaderDue, Value: st.Due.Format(time.RFC3339Nano),
			Problem: "is later than anything on this queue can be; now is taken",
		}
		st.Due = time.Time{}
		if l.kind == delayQueue { // or the writer's clock is ahead: its retries must not run at once
			lie.Problem = "is later than anything on this queue can be; the queue's delay is taken"
			st.Due = redeliver.CeilMilli(e.arrived.UTC().Add(l.level))
		}
		findings = append(findings, lie)
	}
	if len(findings) > 0 {
		l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.queue, ID: st.ID, Findings: findings})
	}
	if st.Due.IsZero() {
		st.Due = e.arrived.UTC().Truncate(time.Millisecond) // it runs at once: not a moment before it is due
	}
	st.Expires = expires(d, st.Source.Timestamp)
	e.state = &st

	turn := l.r.client.turn
	left := st.Due.Sub(e.arrived)
	switch {
	case e.rec.unread != nil: // it has waited enough
		l.ready.Push(e)
		return
	case l.kind == suspectQueue:
		if e.again {
			e.times = max(0, count-turn.Known.Of(st.ID))
		}
		if e.times >= l.r.layout.policy.MaxCrashes {
			e.then = toDLQ
		}
		l.ready.Push(e)
		return
	case delayed:
		e.then = toOrigin
	case e.again && (l.kind == delayQueue || left > 0):
		// Before it is due it has killed nobody, but the broker counts restarts
		// in that time too. Written again, it is counted from the beginning.
		e.then = toLevel
	case e.again && l.r.client.suspect(count, counted, st.ID):
		e.then = toSuspects
	}
	if left <= 0 || e.then == toLevel && l.kind == retryQueue {
		l.ready.Push(e)
		return
	}
	until := st.Due
	if l.kind == delayQueue {
		if l.r.layout.hops(left, l.level) || leaves.Before(e.arrived.Add(l.level)) && leaves.Before(until) {
			until, e.then = leaves, toLevel
		}
	} else if _, more := l.r.layout.ladder.Next(left, 0); more && !l.mayHold(left) {
		e.then = toLevel
		l.ready.Push(e)
		return
	}
	if most := e.arrived.Add(l.r.client.cfg.ConsumerTimeout / 4); until.After(most) {
		// The smallest level is long, and the broker closes the channel of who
		// keeps a message longer: meanwhile it goes through the queue again.
		until, e.then = most, toLevel
	}
	if !l.hold.Put(until, e) { // it has room for the prefetch, so this is a broker that keeps no promise
		e.then = toLevel
		l.ready.Push(e)
	}
}

// mayHold tells whether a wait that a level could take is spent here: what
// remains of it is jitter, and there is room. A hop would only bring the message
// back to this place.
func (l *lane) mayHold(left time.Duration) bool {
	return left <= l.r.layout.jitter && left < l.r.client.cfg.ConsumerTimeout/4 && l.hold.Len() < l.prefetch/2
}

// release makes ready what has waited long enough.
func (l *lane) release(now time.Time) {
	for {
		e, ok := l.hold.Pop(now)
		if !ok {
			return
		}
		l.ready.Push(e)
	}
}

// leaves is when a message that waits on a level leaves it for a shorter one. It
// was not read at once where the prefetch was spent, so its writer says when.
func leaves(headers amqp.Table, latest time.Time) time.Time {
	text, _ := headers[HeaderUntil].(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Before(latest) {
		return at
	}
	return latest
}

// publishesTo tells whether a delayed publish may go there when it is due: to the
// exchange of the subscription's topic, or, where that is the default exchange,
// to its queue. On an exchange of several topics the routing key tells them apart.
func (r *reader) publishesTo(exchange, key string) bool {
	t, topic := r.client.cfg.Topology, r.layout.topic
	return exchange == t.exchange(topic) && (exchange != "" || key == t.routingKey(topic))
}

// neverDelivered tells a delayed publish, which waits for its time to be
// published, from a message that a handler has seen or is to see.
func neverDelivered(st redeliver.State) bool {
	return st.Attempts == 0 && st.Replays == 0 && st.PostponedSince.IsZero() && st.FirstFailed.IsZero()
}

// waitedOn is the level on which a delivery waits, or, by the broker's own
// account, waited last.
func (l *lane) waitedOn(headers amqp.Table) (level time.Duration, ok bool) {
	if l.kind == delayQueue {
		return l.level, true
	}
	deaths, _ := headers["x-death"].([]any)
	if len(deaths) == 0 {
		return 0, false
	}
	death, _ := deaths[0].(amqp.Table)
	queue, _ := death["queue"].(string)
	return l.r.layout.names.level(l.r.layout.queue, queue)
}

// longest is the latest due time that a delivery can have: with more time left
// it would be on the next longer level. A level that it has waited on may have
// been over too early (of a broker's policy, of its limit of deliveries). One that
// another policy wrote may have had other levels to choose from.
func (l *lane) longest(st redeliver.State, level time.Duration, waited bool, arrived time.Time) time.Time {
	ladder := l.r.layout.ladder
	ours := st.Policy == l.r.layout.fingerprint
	above := ladder[0] // it came without a level: its wait was too short for one
	if waited {
		above = ladder.Above(level)
	}
	if !ours || above == 0 {
		return arrived.Add(redeliver.MaxWait)
	}
	return arrived.Add(above + slack)
}

// expires is when a message's own expiration is over. It counts from the
// publisher's time, which has whole seconds only, or from when we first saw it.
func expires(d *amqp.Delivery, seen time.Time) time.Time {
	life, ok := lifetime(d.Expiration)
	switch {
	case !ok:
		return time.Time{}
	case !d.Timestamp.IsZero():
		return d.Timestamp.Add(time.Second + life)
	case seen.IsZero():
		return time.Time{}
	default:
		return seen.Add(life)
	}
}
