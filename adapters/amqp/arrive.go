package amqp

import (
	"maps"
	"runtime/debug"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/delayqueue"
	"github.com/redeliver/redeliver/internal/driver"
)

// A message that comes back maxReturns times is written anew, maxCopies times to the way back, and then to the suspects. Classic
// queues say only whether one has come back, so from there it is written anew the first time. Where messages keep their places
// it runs alone then.
const (
	maxReturns = 5
	maxCopies  = 2
)

// rewriteRest is how long a message rests that was written anew.
const rewriteRest = time.Second

// readDelivery takes a delivery apart: what is the user's, the state that it brings, or that this process remembers, and what is to be
// done with it.
func (s *source) readDelivery(d *delivery, m *driver.Message[*delivery]) {
	d.raw, d.unread = unreadable(&d.Delivery)
	d.marshaler, d.keys = s.r.client.cfg.Marshaler, s.r.client.cfg.StateKeys
	m.Retry, m.Displaced, m.Alone = s.kind != mainQueue, s.kind != mainQueue, s.kind == suspectQueue
	count, counted := deliveryCount(d.Headers)
	var found []redeliver.Finding
	if s.kind == mainQueue {
		found = d.readDeadLetter(s.r.layout.queue, s.r.client.cfg.Names)
	}
	switch {
	case s.kind != mainQueue:
		s.readReturned(d, m, count)
	case s.ordered:
		s.readOrdered(d, m, count >= maxReturns || !counted)
	case d.redelivered && (count >= maxReturns || !counted):
		s.limitReturns(d, m, false)
	}
	if s.kind == mainQueue {
		s.reportForeignHeaders(d, found)
	}
	if d.unread != nil { // it has waited enough
		m.Step, m.Err, m.Until = driver.Bury, &redeliver.UndecodableError{Err: d.unread}, time.Time{}
	}
}

// reportForeignHeaders reports headers of a first delivery that are called like ours, and what was found before. Of one that could not
// be read they stand in its raw headers.
func (s *source) reportForeignHeaders(d *delivery, found []redeliver.Finding) {
	if d.unread != nil {
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
		return
	}
	if s.r.sub.Sink == nil {
		return
	}
	if found = append(found, foreignHeaders(d.Headers, "on a queue that redeliver does not write; it is not believed")...); found != nil {
		s.r.sub.Tell(redeliver.HeadersIgnored{Topic: s.queue, ID: d.stateID(), Findings: found})
	}
}

// limitReturns has a message written anew that has come back often. One that still waits has killed nobody, and goes on waiting.
func (s *source) limitReturns(d *delivery, m *driver.Message[*delivery], stillWaiting bool) {
	switch {
	case stillWaiting:
		m.Step = driver.Hop
	case d.rewritten >= maxCopies:
		m.Step = driver.Isolate
	default:
		m.Step, d.rewrite = driver.Hop, true
	}
}

// readOrdered is arrive where messages keep their places: one that has failed here goes on as it was, and one that has come
// back often runs alone. That is asked about the first of its key alone, because nothing behind it has run.
func (s *source) readOrdered(d *delivery, m *driver.Message[*delivery], cameOften bool) {
	s.readKey(d)
	m.Key = s.lineOf(d)
	if !d.redelivered {
		return
	}
	if d.state = s.r.client.places.Take(spot{s.queue, d.stateID()}); d.state != nil { // this process has survived it
		m.State, m.Until, m.InPlace, m.Retry = d.state, d.state.Due, true, true
		return
	}
	if cameOften && d.unread == nil && (m.Key == 0 || s.lines[m.Key] == 0) {
		d.inTurn = &inPlaceTurn{s: s, d: d}
	}
}

// readKey reads a message's key. One over which Key panics is undecodable, and has none.
func (s *source) readKey(d *delivery) {
	if s.r.layout.policy.Order != redeliver.PerKey || d.unread != nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			d.unread = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	d.key = s.r.client.cfg.Key(d.Delivery)
}

// readKeyAgain reads the key of a message from a queue of ours, by which Policy.Invalid may know it: there it stands behind
// nobody. One over which Key panics now has none.
func (s *source) readKeyAgain(d *delivery) {
	if p := &s.r.layout.policy; p.Order != redeliver.PerKey || p.Invalid == nil || d.unread != nil {
		return
	}
	defer func() { _ = recover() }()
	d.key = s.r.client.cfg.Key(d.Delivery)
}

// readReturned is arrive for a message from a queue that we write.
func (s *source) readReturned(d *delivery, m *driver.Message[*delivery], count int) {
	forged := stripUnsigned(d.keys, &d.Delivery)
	d.rewritten = copiesOf(d.Headers)
	leavesLevel := leavesAt(d.Headers, d.arrived.Add(s.level))
	ours, findings := restoreOriginal(&d.Delivery)
	layout := s.r.layout
	d.readDeadLetter(layout.queue, s.r.client.cfg.Names) // its findings were reported when it came first
	s.readKeyAgain(d)
	a := delayqueue.Arrival{
		Group: layout.queue, Origin: layout.queue, Ladder: layout.ladder,
		Findings: append(forged, findings...), Written: d.arrived, Jitter: s.maxHold(), Now: d.arrived,
	}
	if d.rewritten > 0 {
		a.Jitter = max(a.Jitter, rewriteRest)
	}
	if s.kind == delayQueue {
		a.Level, a.Leaves, a.Jitter = s.level, leavesLevel, layout.jitter
	}
	stay := delayqueue.Arrive(&a, ours, d.stateID)
	st := stay.State
	s.r.sub.Met(st)
	stay.Publish = stay.Publish && d.rewritten == 0 && s.kind != suspectQueue // which first deliveries reach, too
	if stay.Publish && !s.r.publishesTo(d.own().Exchange, d.own().RoutingKey) {
		// Nor may a block send a message to another place than where this topology publishes.
		stay.Publish = false
		stay.Findings = append(stay.Findings, redeliver.Finding{
			Header: HeaderExchange, Value: redeliver.Cut(place(d.own().Exchange, d.own().RoutingKey), 64),
			Problem: "is not where the topology publishes; the message goes to its own handler",
		})
	}
	if len(stay.Findings) > 0 {
		s.r.sub.Tell(redeliver.HeadersIgnored{Topic: s.queue, ID: st.ID, Findings: stay.Findings})
	}
	st.Expires, st.DeadLetter = expiryOf(d.own(), st.Source.Timestamp), d.deadLetter
	d.state = st
	s.decideStep(d, m, &stay, count)
}

// decideStep says what is done with a message from a queue that we write, and when.
func (s *source) decideStep(d *delivery, m *driver.Message[*delivery], stay *delayqueue.Stay, count int) {
	left := d.state.Due.Sub(d.arrived)
	switch {
	case s.kind == suspectQueue:
		if d.redelivered {
			s.chargeCrashes(d, m, count)
		}
		return
	case stay.Publish:
		m.Step = driver.Publish
	case d.redelivered && count >= maxReturns:
		s.limitReturns(d, m, left > 0)
		return
	}
	if stay.Hops {
		m.Step = driver.Hop
	}
	if left <= 0 || m.Step == driver.Hop && s.kind == retryQueue {
		return
	}
	m.Until = stay.Until
	if maxUntil := d.arrived.Add(s.r.client.cfg.ConsumerTimeout / 4); m.Until.After(maxUntil) {
		// The smallest level is long, and the broker closes the channel of who keeps a message longer: meanwhile it goes
		// through the queue again.
		m.Until, m.Step = maxUntil, driver.Hop
	}
}

// maxHold is the longest wait that is spent here although a level could take it: while there is room, as much as is jitter.
func (s *source) maxHold() time.Duration {
	if s.acks.open() >= s.prefetch/2 || s.acks.bytes > s.r.client.cfg.RetryBytes/2 {
		return 0
	}
	return min(s.r.layout.jitter, s.r.client.cfg.ConsumerTimeout/4)
}

// deliveryCount is how often a quorum queue delivered a message before. From RabbitMQ 4.3 on it does not count what is handed
// back, and says how often it was acquired.
func deliveryCount(headers amqp091.Table) (n int, counted bool) {
	switch v := headers["x-delivery-count"].(type) {
	case int64:
		return int(v), true
	case int32:
		return int(v), true
	default:
		_, counted = headers["x-acquired-count"]
		return 0, counted
	}
}

func copiesOf(headers amqp091.Table) int {
	n, _ := headers[headerCopies].(int32)
	return max(0, int(n))
}

// leavesAt is when a message that waits on a level leaves it for a shorter one. It was not read at once where the prefetch was
// spent, so its writer says when.
func leavesAt(headers amqp091.Table, latest time.Time) time.Time {
	text, _ := headers[HeaderUntil].(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Before(latest) {
		return at
	}
	return latest
}

// publishesTo reports whether a delayed publish may go there when it is due: to the exchange of the subscription's topic, or,
// where that is the default exchange, to its queue. On an exchange of several topics the routing key tells them apart.
func (r *reader) publishesTo(exchange, key string) bool {
	t, topic := r.client.cfg.Topology, r.layout.topic
	return exchange == t.exchange(topic) && (exchange != "" || key == t.routingKey(topic))
}

// expiryOf is when a message expires by itself: the earlier end of those that its header and its expiration name.
func expiryOf(d *amqp091.Delivery, seen time.Time) time.Time {
	text, _ := textOf(d.Headers[redeliver.HeaderExpires])
	named, ok := redeliver.ParseExpires(text)
	if end := expirationEnd(d, seen); !ok || !end.IsZero() && end.Before(named) {
		return end
	}
	return named
}

// expirationEnd is when a message's own expiration is over. It counts from the publisher's time, which has whole seconds only,
// or from when we first saw it.
func expirationEnd(d *amqp091.Delivery, seen time.Time) time.Time {
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
