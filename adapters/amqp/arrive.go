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
	"github.com/redeliver/redeliver/internal/statekeys"
)

// maxCopies is how often a message that comes back often is rewritten to the retry queue; then it goes to the suspects.
// Classic queues do not count returns, so their messages are rewritten at the first one. Ordered messages run alone
// instead.
const maxCopies = 2

// rewriteWait is how long a rewritten message waits.
const rewriteWait = time.Second

// arrival is a delivery whose next step is being decided.
type arrival struct {
	*source
	d *delivery
	m *driver.Message[*delivery]
}

// read reads the delivery: the user's part, the state that it brings or that this process remembers, and the next step.
func (a *arrival) read() {
	d, m := a.d, a.m
	d.Raw, d.Unreadable = wire.RemoveUnreadable(&d.Delivery)
	d.Keys = a.r.client.cfg.StateKeys
	m.Retry, m.Displaced, m.Alone = a.kind != layout.MainQueue, a.kind != layout.MainQueue, a.kind == layout.SuspectQueue
	count, counted := wire.DeliveryCount(d.Headers)
	counted = counted && !(a.kind == layout.MainQueue && a.r.classic.Load())
	var found []redeliver.Finding
	if a.kind == layout.MainQueue {
		found = d.ReadDeadLetter(a.r.layout.Queue, a.r.layout.Names.DLQOf)
	}
	switch {
	case a.kind != layout.MainQueue:
		a.readReturned(count)
	case a.ordered:
		a.readOrdered(count >= layout.MaxReturns || !counted)
	case d.redelivered && (count >= layout.MaxReturns || !counted):
		a.limitReturns(false)
	}
	if a.kind == layout.MainQueue {
		a.reportForeignHeaders(found)
	}
	if d.Unreadable != nil { // it has waited long enough
		m.Step, m.Err, m.Until = driver.StepDeadLetter, &redeliver.UndecodableError{Err: d.Unreadable}, time.Time{}
	}
}

// reportForeignHeaders reports a first delivery's headers that have redeliver's names, and earlier findings. Unreadable
// ones are only removed: HeaderRaw has them.
func (a *arrival) reportForeignHeaders(found []redeliver.Finding) {
	d := a.d
	if d.Unreadable != nil {
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
		return
	}
	if a.r.sub.Sink == nil {
		return
	}
	if found = append(found, wire.ForeignHeaders(d.Headers, "on a queue that redeliver does not write; it is not believed")...); found != nil {
		a.r.sub.Emit(redeliver.HeadersIgnored{Topic: a.queue, ID: d.StateID(), Findings: found})
	}
}

// limitReturns rewrites or isolates a message that came back often. One that still waits has killed no process, and
// only hops.
func (a *arrival) limitReturns(stillWaiting bool) {
	d, m := a.d, a.m
	switch {
	case stillWaiting:
		m.Step = driver.StepHop
	case d.rewritten >= maxCopies:
		m.Step = driver.StepIsolate
	default:
		m.Step, d.rewrite = driver.StepHop, true
	}
}

// readOrdered is read for ordered queues. A message that has failed continues as it was. One that came back often runs
// alone, but only if it is the first of its key, because the ones behind it have not run.
func (a *arrival) readOrdered(cameOften bool) {
	d, m := a.d, a.m
	a.readKey()
	m.Key = a.r.orderKey(d)
	if !d.redelivered {
		a.notes.DropUntaken()
		return
	}
	if d.Unreadable != nil {
		return
	}
	a.readNote()
	key := placeKey{queue: a.queue, message: d.identity()}
	unnoted := a.r.client.places.Take(key)
	key.noted = true
	survived := a.r.client.places.Take(key) != nil || unnoted != nil // this process is alive, so it was no crash
	if unnoted != nil && (d.state == nil || d.state.Attempts <= unnoted.Attempts) {
		d.state = unnoted
	}
	if d.state != nil {
		m.State, m.Until, m.InPlace, m.Retry = d.state, d.state.Due, true, true
	}
	d.suspect = (cameOften && !survived || d.crashes > 0) && a.isFirstOfKey()
}

// isFirstOfKey reports whether no unsettled message of the key came before.
func (a *arrival) isFirstOfKey() bool {
	for before := range a.acks.unsent {
		if before != a.d && before.ackState == ackOpen && before.m.Key == a.m.Key && a.m.Key != 0 {
			return false
		}
	}
	return true
}

// readKey reads a message's key. If Key panics, the message has no key, and is undecodable if it is in the origin. The
// key of a message from one of redeliver's queues orders nothing: it is for Policy.Invalid.
func (a *arrival) readKey() {
	d := a.d
	if p := &a.r.layout.Policy; p.Order != redeliver.OrderThroughRetries || !a.ordered && p.Invalid == nil || d.Unreadable != nil {
		return
	}
	defer func() {
		if v := recover(); v != nil && a.ordered {
			d.Unreadable = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	d.key = a.r.client.cfg.Key(d.Delivery)
}

// readReturned is read for a message from a queue that redeliver writes.
func (a *arrival) readReturned(count int) {
	d := a.d
	forged := wire.StripUnsigned(d.Keys, statekeys.Waiting, &d.Delivery)
	d.rewritten = wire.CopiesOf(d.Headers)
	leavesLevel := wire.LeavesAt(d.Headers, d.arrived.Add(a.level))
	ours, findings := wire.RestoreOriginal(&d.Delivery)
	l := a.r.layout
	d.ReadDeadLetter(l.Queue, l.Names.DLQOf) // its findings were reported at its first delivery
	a.readKey()
	came := delayqueue.Arrival{
		Group: l.Queue, Origin: l.Queue, Ladder: l.Ladder,
		Findings: append(forged, findings...), Written: d.arrived, Jitter: a.maxHold(), Now: d.arrived,
	}
	if d.rewritten > 0 {
		came.Jitter = max(came.Jitter, rewriteWait)
	}
	if a.kind == layout.DelayQueue {
		came.Level, came.Leaves, came.Jitter = a.level, leavesLevel, l.Jitter
	}
	stay := delayqueue.Arrive(&came, ours, d.StateID)
	st := stay.State
	a.r.sub.CheckPolicyOf(st)
	stay.Publish = stay.Publish && d.rewritten == 0 && a.kind != layout.SuspectQueue // the suspects get first deliveries too
	if stay.Publish && !a.r.publishesTo(d.Own().Exchange, d.Own().RoutingKey) {
		// A forged state must not send a message to a place where this topology does not publish.
		stay.Publish = false
		stay.Findings = append(stay.Findings, redeliver.Finding{
			Header: wire.HeaderExchange, Value: limits.Cut(link.PlaceText(d.Own().Exchange, d.Own().RoutingKey), 64),
			Problem: "is not where the topology publishes; the message goes to its own handler",
		})
	}
	if len(stay.Findings) > 0 {
		a.r.sub.Emit(redeliver.HeadersIgnored{Topic: a.queue, ID: st.ID, Findings: stay.Findings})
	}
	st.Expires, st.DeadLetter = wire.ExpiryOf(d.Own(), wire.FirstSeen(st)), d.DeadLetter
	d.state = st
	a.decideStep(&stay, count)
}

// decideStep decides what happens to a message from one of redeliver's queues, and when.
func (a *arrival) decideStep(stay *delayqueue.Stay, count int) {
	d, m := a.d, a.m
	left := d.state.Due.Sub(d.arrived)
	switch {
	case a.kind == layout.SuspectQueue:
		if d.redelivered {
			a.deadLetterAtMaxCrashes(count)
		}
		return
	case stay.Publish:
		m.Step = driver.StepPublish
	case d.redelivered && count >= layout.MaxReturns:
		a.limitReturns(left > 0)
		return
	}
	if stay.Hops {
		m.Step = driver.StepHop
	}
	if left <= 0 || m.Step == driver.StepHop && a.kind == layout.RetryQueue {
		return
	}
	m.Until = stay.Until
	if maxUntil := d.arrived.Add(a.r.client.cfg.ConsumerTimeout / 4); m.Until.After(maxUntil) {
		// The broker closes the channel of a consumer that keeps a message for ConsumerTimeout. So a message that waits
		// longer goes through the queue again.
		m.Until, m.Step = maxUntil, driver.StepHop
	}
}

// maxHold returns the longest wait that is spent here although a level could take it: the jitter, if there is room.
func (a *arrival) maxHold() time.Duration {
	if a.acks.open() >= a.prefetch/2 || a.acks.bytes > a.r.client.cfg.RetryBytes/2 {
		return 0
	}
	return min(a.r.layout.Jitter, a.r.client.cfg.ConsumerTimeout/4)
}

// deadLetterAtMaxCrashes sends a suspect to the DLQ if it has crashed too many processes.
func (a *arrival) deadLetterAtMaxCrashes(count int) {
	d, m := a.d, a.m
	times := max(0, count-a.r.client.lostSuspects.Count(d.id()))
	if times >= a.r.layout.Policy.MaxCrashes {
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.CrashedError{Crashes: times}
	}
}

// publishesTo reports whether a delayed publish may go to this destination: the exchange of the subscription's topic,
// or on the default exchange its queue. If several topics share an exchange, the routing key distinguishes them.
func (r *reader) publishesTo(exchange, key string) bool {
	t, topic := r.client.cfg.Topology, r.layout.Topic
	return exchange == t.exchange(topic) && (exchange != "" || key == t.routingKey(topic))
}
