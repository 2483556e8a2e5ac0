package amqp

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// receive reads the state of a delivery from a queue that we write and holds it
// until it may go on.
func (l *lane) receive(e *entry) {
	d := &e.rec.Delivery
	count, _ := deliveryCount(d.Headers)
	e.copies = copiesOf(d.Headers)
	leaves := leaves(d.Headers, e.arrived.Add(l.level))
	ours, findings := original(d)
	l.keyAgain(e)
	layout := l.r.layout
	a := delayqueue.Arrival{
		Group: layout.queue, Origin: layout.queue, Ladder: layout.ladder,
		Findings: findings, Written: e.arrived, Jitter: l.mayHold(), Now: e.arrived,
	}
	if e.copies > 0 {
		a.Jitter = max(a.Jitter, restsBefore) // see anew
	}
	if l.kind == delayQueue {
		a.Level, a.Leaves, a.Jitter = l.level, leaves, layout.jitter
	}
	stay := delayqueue.Arrive(&a, ours, func() string { return idOf(d) })
	st := stay.State
	l.r.sub.Met(st)
	stay.Publish = stay.Publish && e.copies == 0 && l.kind != suspectQueue // which first deliveries reach, too
	if stay.Publish && !l.r.publishesTo(d.Exchange, d.RoutingKey) {
		// Nor may a block send a message to another place than where this
		// topology publishes.
		stay.Publish = false
		stay.Findings = append(stay.Findings, redeliver.Finding{
			Header: HeaderExchange, Value: redeliver.Cut(place(d.Exchange, d.RoutingKey), 64),
			Problem: "is not where the topology publishes; the message goes to its own handler",
		})
	}
	if len(stay.Findings) > 0 {
		l.r.sub.Tell(redeliver.HeadersIgnored{Topic: l.queue, ID: st.ID, Findings: stay.Findings})
	}
	st.Expires = expires(d, st.Source.Timestamp)
	e.state = st

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
	case stay.Publish:
		e.then = toOrigin
	case e.again && count >= maxReturns:
		l.renewCopy(e, left > 0)
		return
	}
	if stay.Hops {
		e.then = toLevel
	}
	if left <= 0 || e.then == toLevel && l.kind == retryQueue {
		l.ready.Push(e)
		return
	}
	until := stay.Until
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

// mayHold is the longest wait that is spent here although a level could take it:
// while there is room, as much as is jitter.
func (l *lane) mayHold() time.Duration {
	if l.hold.Len() >= l.prefetch/2 || l.acks.bytes > l.r.client.cfg.RetryBytes/2 {
		return 0
	}
	return min(l.r.layout.jitter, l.r.client.cfg.ConsumerTimeout/4)
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
