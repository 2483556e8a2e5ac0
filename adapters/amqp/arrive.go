package amqp

import (
	"maps"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// maxCopies is how often a message that comes back often is rewritten to the retry queue; then it goes to the suspects.
// Classic queues report only that a message came back, so they rewrite at the first return. Ordered messages run alone
// instead.
const maxCopies = 2

// rewriteWait is how long a rewritten message waits.
const rewriteWait = time.Second

// readDelivery reads a delivery: the user's part, the state that it brings or that this process remembers, and the
// next step.
func (s *source) readDelivery(d *delivery, m *driver.Message[*delivery]) {
	d.Raw, d.Unread = wire.Unreadable(&d.Delivery)
	d.Keys = s.r.client.cfg.StateKeys
	m.Retry, m.Displaced, m.Alone = s.kind != layout.MainQueue, s.kind != layout.MainQueue, s.kind == layout.SuspectQueue
	count, counted := wire.DeliveryCount(d.Headers)
	var found []redeliver.Finding
	if s.kind == layout.MainQueue {
		found = d.ReadDeadLetter(s.r.layout.Queue, s.r.layout.Names.DLQOf)
	}
	switch {
	case s.kind != layout.MainQueue:
		s.readReturned(d, m, count)
	case s.ordered:
		s.readOrdered(d, m, count >= layout.MaxReturns || !counted)
	case d.redelivered && (count >= layout.MaxReturns || !counted):
		s.limitReturns(d, m, false)
	}
	if s.kind == layout.MainQueue {
		s.reportForeignHeaders(d, found)
	}
	if d.Unread != nil { // it has waited long enough
		m.Step, m.Err, m.Until = driver.Bury, &redeliver.UndecodableError{Err: d.Unread}, time.Time{}
	}
}

// reportForeignHeaders reports headers of a first delivery that have redeliver's names, and earlier findings. If the
// headers could not be read, they are kept in HeaderRaw.
func (s *source) reportForeignHeaders(d *delivery, found []redeliver.Finding) {
	if d.Unread != nil {
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
		return
	}
	if s.r.sub.Sink == nil {
		return
	}
	if found = append(found, wire.ForeignHeaders(d.Headers, "on a queue that redeliver does not write; it is not believed")...); found != nil {
		s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue, ID: d.StateID(), Findings: found})
	}
}

// limitReturns rewrites a message that came back often. A message that still waits has killed no process, and continues
// waiting.
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

// readOrdered is readDelivery for ordered queues. A message that has failed here continues as it was. One that came
// back often runs alone, but only if it is the first of its key, because the ones behind it have not run.
func (s *source) readOrdered(d *delivery, m *driver.Message[*delivery], cameOften bool) {
	s.readKey(d)
	m.Key = s.lineOf(d)
	if !d.redelivered {
		return
	}
	if d.state = s.r.client.places.Take(placeKey{s.queue, d.StateID()}); d.state != nil { // the process is alive, so it was no crash
		m.State, m.Until, m.InPlace, m.Retry = d.state, d.state.Due, true, true
		return
	}
	if cameOften && d.Unread == nil && (m.Key == 0 || s.lines[m.Key] == 0) {
		d.inTurn = &inPlaceTurn{s: s, d: d}
	}
}

// readKey reads a message's key. If Key panics, the message is undecodable and has no key.
func (s *source) readKey(d *delivery) {
	if s.r.layout.Policy.Order != redeliver.PerKey || d.Unread != nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			d.Unread = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	d.key = s.r.client.cfg.Key(d.Delivery)
}

// readKeyAgain reads the key of a message from one of redeliver's queues, for Policy.Invalid. The message waits for
// no other. If Key panics now, it has no key.
func (s *source) readKeyAgain(d *delivery) {
	if p := &s.r.layout.Policy; p.Order != redeliver.PerKey || p.Invalid == nil || d.Unread != nil {
		return
	}
	defer func() { _ = recover() }()
	d.key = s.r.client.cfg.Key(d.Delivery)
}

// readReturned is readDelivery for a message from a queue that redeliver writes.
func (s *source) readReturned(d *delivery, m *driver.Message[*delivery], count int) {
	forged := wire.StripUnsigned(d.Keys, &d.Delivery)
	d.rewritten = wire.CopiesOf(d.Headers)
	leavesLevel := wire.LeavesAt(d.Headers, d.arrived.Add(s.level))
	ours, findings := wire.RestoreOriginal(&d.Delivery)
	l := s.r.layout
	d.ReadDeadLetter(l.Queue, l.Names.DLQOf) // its findings were reported at its first delivery
	s.readKeyAgain(d)
	a := delayqueue.Arrival{
		Group: l.Queue, Origin: l.Queue, Ladder: l.Ladder,
		Findings: append(forged, findings...), Written: d.arrived, Jitter: s.maxHold(), Now: d.arrived,
	}
	if d.rewritten > 0 {
		a.Jitter = max(a.Jitter, rewriteWait)
	}
	if s.kind == layout.DelayQueue {
		a.Level, a.Leaves, a.Jitter = s.level, leavesLevel, l.Jitter
	}
	stay := delayqueue.Arrive(&a, ours, d.StateID)
	st := stay.State
	s.r.sub.Met(st)
	stay.Publish = stay.Publish && d.rewritten == 0 && s.kind != layout.SuspectQueue // the suspects get first deliveries too
	if stay.Publish && !s.r.publishesTo(d.Own().Exchange, d.Own().RoutingKey) {
		// A forged state must not send a message to a place where this topology does not publish.
		stay.Publish = false
		stay.Findings = append(stay.Findings, redeliver.Finding{
			Header: wire.HeaderExchange, Value: limits.Cut(link.PlaceText(d.Own().Exchange, d.Own().RoutingKey), 64),
			Problem: "is not where the topology publishes; the message goes to its own handler",
		})
	}
	if len(stay.Findings) > 0 {
		s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.queue, ID: st.ID, Findings: stay.Findings})
	}
	st.Expires, st.DeadLetter = wire.ExpiryOf(d.Own(), st.Source.Timestamp), d.DeadLetter
	d.state = st
	s.decideStep(d, m, &stay, count)
}

// decideStep decides what happens to a message from one of redeliver's queues, and when.
func (s *source) decideStep(d *delivery, m *driver.Message[*delivery], stay *delayqueue.Stay, count int) {
	left := d.state.Due.Sub(d.arrived)
	switch {
	case s.kind == layout.SuspectQueue:
		if d.redelivered {
			s.buryAtMaxCrashes(d, m, count)
		}
		return
	case stay.Publish:
		m.Step = driver.Publish
	case d.redelivered && count >= layout.MaxReturns:
		s.limitReturns(d, m, left > 0)
		return
	}
	if stay.Hops {
		m.Step = driver.Hop
	}
	if left <= 0 || m.Step == driver.Hop && s.kind == layout.RetryQueue {
		return
	}
	m.Until = stay.Until
	if maxUntil := d.arrived.Add(s.r.client.cfg.ConsumerTimeout / 4); m.Until.After(maxUntil) {
		// The smallest level is long, and the broker closes the channel of a consumer that keeps a message longer. So
		// the message goes through the queue again.
		m.Until, m.Step = maxUntil, driver.Hop
	}
}

// maxHold returns the longest wait that is spent here although a level could take it: the jitter, if there is room.
func (s *source) maxHold() time.Duration {
	if s.acks.open() >= s.prefetch/2 || s.acks.bytes > s.r.client.cfg.RetryBytes/2 {
		return 0
	}
	return min(s.r.layout.Jitter, s.r.client.cfg.ConsumerTimeout/4)
}

// publishesTo reports whether a delayed publish may go to this destination: the exchange of the subscription's topic,
// or on the default exchange its queue. If several topics share an exchange, the routing key distinguishes them.
func (r *reader) publishesTo(exchange, key string) bool {
	t, topic := r.client.cfg.Topology, r.layout.Topic
	return exchange == t.exchange(topic) && (exchange != "" || key == t.routingKey(topic))
}
