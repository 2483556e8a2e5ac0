package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// store writes the messages of one subscription to where they wait, to the suspects and to the DLQ. It writes through
// the default exchange to a queue by name, so that no other queue gets a copy. It implements driver.Store.
type store struct {
	sender    *link.Sender
	published *link.Sender // for delayed publishes that are due
	layout    *layout.Layout
	declare   func(ctx context.Context, missing error) error // declares the layout's queues again
	record    func(method, place string, err error)          // of a request
	writers   *engine.Workers[*write]
}

var _ driver.Store[*delivery] = (*store)(nil)

// Write implements [driver.Store].
func (t *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*delivery], st *redeliver.State, done driver.Done) {
	t.writers.Submit(&write{t, ctx, m.Record, to, m.Step, st, done})
}

// Truncates implements [driver.Truncating]. A message that the DLQ refuses goes there in parts.
func (t *store) Truncates() bool { return true }

// waitingPlace returns the queue on which a message waits until due. until is when a subscriber moves it to a shorter
// level, or zero. If the wait is too short for a level, the retry queue's reader holds it.
func waitingPlace(l *layout.Layout, due, now time.Time) (queue string, until time.Time) {
	left := due.Sub(now)
	level, ok := l.Ladder.Next(left, layout.LevelSlack)
	if !ok {
		return l.Retry(), until
	}
	if level <= layout.MaxReadLevel && l.MustHop(left, level) {
		until = now.Add(level)
	}
	return l.Names.DelayOf(l.Queue, level), until
}

// write is one try to write a message.
type write struct {
	*store
	ctx  context.Context
	d    *delivery
	to   driver.Place
	step driver.Step
	st   *redeliver.State
	done driver.Done
}

func (w *write) do() { w.done.Confirmed(w.writeMessage()) }

// writeMessage writes the message and returns where.
func (w *write) writeMessage() (where string, err error) {
	d, rec, to, st := w.d, w.d.Record, w.to, w.st
	rec.Copies = 0
	if w.step == driver.StepHop {
		rec.Copies = d.rewritten
	}
	switch {
	case to == driver.PlaceDLQ && st.Truncated != "" && d.maxBody > 0:
		return w.layout.DLQ(), w.deadLetterInParts(st)
	case to == driver.PlaceDLQ:
		return w.layout.DLQ(), w.sendTo(w.layout.DLQ(), rec.DeadCopy(st, w.sender.FrameMax()))
	case to == driver.PlaceSuspects:
		return w.waiting(&rec, w.layout.Suspects(), st, time.Time{}, wire.CountRoom)
	case to == driver.PlaceTopic:
		return w.publish()
	case d.rewrite:
		// It waits so that the broker has the original's ack first. A message that kills its process would otherwise
		// leave both each time.
		again := *st
		again.Due = limits.CeilMilli(time.Now().Add(rewriteWait).UTC())
		rec.Copies++
		return w.waiting(&rec, w.layout.Retry(), &again, time.Time{}, wire.WaitingRoom)
	default:
		queue, until := waitingPlace(w.layout, st.Due, time.Now())
		return w.waiting(&rec, queue, st, until, wire.WaitingRoom)
	}
}

// waiting writes to a queue from which the message comes back. A message whose own headers leave no room is refused.
func (w *write) waiting(rec *wire.Record, queue string, st *redeliver.State, until time.Time, room int) (string, error) {
	p, err := rec.WaitingCopy(st, until, w.sender.FrameMax(), room)
	if err != nil {
		return queue, err
	}
	return queue, w.sendTo(queue, p)
}

// deadLetterInParts writes a message that is too large for the broker to the DLQ in parts, each with a part of the body and
// all headers. Rejecting the original could lose it, because a policy can end its queue's dead-lettering.
func (w *write) deadLetterInParts(st *redeliver.State) error {
	d, body := w.d, w.d.Body
	for n := max(1, (len(body)+d.maxBody-1)/d.maxBody); d.parts < n; d.parts++ {
		part, copied := d.Record, *d.Own()
		copied.Body = body[d.parts*d.maxBody : min(len(body), (d.parts+1)*d.maxBody)]
		part.Copied = &copied
		part.Part = fmt.Sprintf("%d/%d", d.parts+1, n)
		if err := w.sendTo(w.layout.DLQ(), part.DeadCopy(st, w.sender.FrameMax())); err != nil {
			return err
		}
	}
	return nil
}

// publish writes a delayed message to its exchange, as its publisher made it. But the broker accepts a user-id only from
// a connection of that user. It was checked when the message was published with the delay. If no queue takes it although the queue was
// just bound again (not with Topology.Existing), its routing key matches no binding: that concerns this message alone.
func (w *write) publish() (string, error) {
	d := w.d.Own()
	where := link.PlaceText(d.Exchange, d.RoutingKey)
	p := wire.PlainCopy(d)
	if p.UserId != w.published.User() {
		p.UserId = ""
	}
	err := w.send(w.published, where, d.Exchange, d.RoutingKey, p)
	if link.IsRefusal(err) && p.UserId != "" { // the login is not the user, as with a token
		p.UserId = ""
		err = w.send(w.published, where, d.Exchange, d.RoutingKey, p)
	}
	if errors.Is(err, link.ErrNoQueue) {
		err = fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	return where, err
}

// send publishes, and waits for the answer even if w.ctx ends first: the message may have been written, and a second
// copy would run beside it. No other try begins then, so Unanswered is called once. If the queue or exchange was
// deleted, it declares the queues and tries once more.
func (w *write) send(through *link.Sender, where, exchange, key string, p amqp091.Publishing) error {
	try := func() error {
		return through.SendAwaiting(w.ctx, exchange, key, p, func(err error) { w.done.Unanswered(where, err) })
	}
	err := try()
	if errors.Is(err, link.ErrNoQueue) || link.IsNotFound(err) {
		if err := w.declare(w.ctx, err); err != nil {
			return err
		}
		err = try()
	}
	// The engine decides whether another error concerns this message alone, and records delayed publishes.
	if w.to != driver.PlaceTopic && (err == nil || link.IsDenied(err)) {
		w.record(link.MethodPublish, link.ExchangeText(exchange, key), err)
	}
	if n := link.MaxBodyOf(err); link.IsRefusal(err) && n != w.d.maxBody {
		w.d.maxBody, w.d.parts = n, 0
	}
	return err
}

// sendTo publishes to one of redeliver's queues.
func (w *write) sendTo(queue string, p amqp091.Publishing) error {
	return w.send(w.sender, queue, "", queue, p)
}
