package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Pauses between the tries to write one message.
const (
	minWritePause = 100 * time.Millisecond
	maxWritePause = 10 * time.Second
)

// A due delayed publish that the origin does not accept waits for publishPause on a level, after maxPublishTries tries.
// Meanwhile the others that are due wait there without a try. Otherwise they would fill the memory of their sources, and
// retries behind them would not be read.
const (
	maxPublishTries = 8
	publishPause    = 30 * time.Second
)

// move writes one message to its next place: a level, the DLQ or its topic. No goroutine of the engine waits for that: the store
// calls Confirmed, and a timer starts the next try. While a level or the DLQ accepts nothing, the subscription's gate is closed.
type move struct {
	d         *Delivery
	to        driver.Place
	dec       *redeliver.Decision // its State is written
	cause     error               // of the failure
	unhandled bool                // it only changes its place: no handler failed
	from      string              // where the message was read from; set with unhandled, for the event

	try    int
	pauses backoff.BackOff // nil before the first failure
	closed bool            // this message holds back others, see setClosed
	doubt  doubtfulWrite
}

// moveFailed writes a message that failed to the place that dec asks for. The caller has claimed the message.
func (d *Delivery) moveFailed(dec *redeliver.Decision, cause error) {
	d.endFailedSpan(dec, cause)
	m := &move{d: d, to: driver.PlaceLevel, dec: dec, cause: cause}
	if dec.Action == redeliver.ActionDeadLetter {
		m.to = driver.PlaceDLQ
	}
	m.start()
}

// moveUnhandled writes a message to another place without calling its handler. The caller has claimed the message.
func (d *Delivery) moveUnhandled(to driver.Place, from string) {
	m := &move{d: d, to: to, dec: &redeliver.Decision{State: d.State()}, unhandled: true, from: from}
	switch {
	case to == driver.PlaceTopic && d.sub.failingPublishes.Load() > 0:
		m.delayPublish()
	case to == driver.PlaceLevel:
		m.setLevel()
	}
	m.start()
}

// setLevel makes m a write to a level of the subscription's policy.
func (m *move) setLevel() {
	m.to, m.dec.State.Policy = driver.PlaceLevel, m.d.sub.fingerprint
}

// PublishOperation is the name of the operation that publishes delayed messages that are due.
const PublishOperation = "publish"

func publishTo(where string) Operation { return Operation{PublishOperation, where} }

// delayPublish makes m, a publish to the origin, a write to a level.
func (m *move) delayPublish() {
	m.dec.State.Due = limits.CeilMilli(time.Now().UTC().Add(publishPause))
	m.setLevel()
	m.try, m.pauses = 0, nil
}

func (m *move) start() {
	m.d.entry.handlerEnded()
	m.write()
}

// write tries to write the message once.
func (m *move) write() {
	if m.d.Lost() {
		m.abandon()
		return
	}
	if m.to == driver.PlaceDLQ && m.d.sub.Discards {
		m.finish("")
		return
	}
	m.try++
	m.d.entry.write(m.d.sub.tryContext(time.Now()), m.to, &m.dec.State, m)
}

// Confirmed implements [driver.Done].
func (m *move) Confirmed(where string, err error) {
	switch {
	case err == nil:
		m.finish(where)
	case errors.Is(err, driver.ErrStay):
		m.release()
		if m.unhandled { // no handler ran
			m.d.entry.end(Ending{Kind: Stays, State: &m.dec.State})
			return
		}
		m.d.stayUntilDue(m.dec, where, m.cause)
	default:
		m.fail(where, err)
	}
}

// Unanswered implements [driver.Done].
func (m *move) Unanswered(where string, err error) {
	if !m.d.Lost() {
		m.setClosed(true, where, err)
	}
	m.d.sub.Emit(redeliver.PublishFailed{State: m.dec.State, Where: where, Err: err, Try: m.try})
}

// finish ends a message whose copy is confirmed, or that is discarded: its lane will settle it.
func (m *move) finish(where string) {
	s, d := m.d.sub, m.d
	s.doubts.addWrite(where, &m.doubt)
	m.release()
	deadLettered := m.dec.Action == redeliver.ActionDeadLetter
	switch {
	case m.unhandled && !deadLettered && m.to == driver.PlaceTopic:
		s.Operations.Succeeded(publishTo(where))
		s.Emit(redeliver.Published{State: m.dec.State, Topic: where})
	case m.unhandled && !deadLettered:
		s.Emit(redeliver.Hopped{State: m.dec.State, From: m.from, To: where})
	default:
		d.signal = signalOf(m.dec, m.cause)
		if deadLettered {
			s.slots.countDeadLetter(d.isProbe())
		}
		s.reportWritten(m.dec, where, m.cause)
		if deadLettered && s.Tracer != nil && !s.Discards {
			d.traceDeadLetter(m.dec, where, m.cause)
		}
	}
	how := Ending{Kind: Moved, State: &m.dec.State}
	if deadLettered {
		how.Kind = DeadLettered
	}
	d.entry.end(how)
}

// release lets the messages begin that this one holds back, and forgets its doubtful write.
func (m *move) release() {
	m.d.sub.doubts.forget(&m.doubt)
	m.setClosed(false, "", nil)
}

// setClosed closes or opens the gate for this message. A publish to the origin delays only other publishes: the origin
// may be full, and only the messages that begin make room.
func (m *move) setClosed(closed bool, where string, err error) {
	if m.closed == closed {
		return
	}
	m.closed = closed
	switch s := m.d.sub; {
	case m.to == driver.PlaceTopic && closed:
		s.failingPublishes.Add(1)
	case m.to == driver.PlaceTopic:
		s.failingPublishes.Add(-1)
	case closed:
		s.closeGate(where, err)
	default:
		s.openGate()
	}
}

func (m *move) abandon() {
	m.release()
	m.d.abandonClaimed(m.cause)
}

// fail handles a failed write. A refusal concerns this one message, which goes to the DLQ, without its body if
// necessary. After every other error the write is tried again.
func (m *move) fail(where string, err error) {
	s := m.d.sub
	err = s.doubts.classify(where, err, &m.doubt)
	refused := errors.Is(err, driver.ErrRefused)
	switch {
	case m.to != driver.PlaceDLQ && (refused || errors.Is(err, redeliver.ErrUnschedulable)):
		s.Policy.RejectUnschedulable(m.dec, err)
		if m.unhandled {
			m.cause = err
		}
		if m.to == driver.PlaceTopic {
			m.setClosed(false, "", nil)
		}
		m.to = driver.PlaceDLQ
		m.write()
		return
	case m.to == driver.PlaceDLQ && refused && m.dec.State.Truncated != "":
		err = fmt.Errorf("the DLQ refuses even a message without its body: %v", err) //nolint:errorlint // It accepts nothing: this is an outage.
	case m.to == driver.PlaceDLQ && refused && m.d.entry.truncates():
		m.dec.State.Truncated = describeBody(m.d.entry.body())
		s.Policy.RejectUnschedulable(m.dec, err)
		m.write()
		return
	}
	m.retryLater(where, err)
}

// retryLater sets the timer for the next try, and closes or opens the gate. A delayed publish that was tried often waits on
// a level instead.
func (m *move) retryLater(where string, err error) {
	s := m.d.sub
	if m.to == driver.PlaceTopic {
		s.Operations.Failed(publishTo(where), err, m.try >= maxPublishTries, false)
	}
	if m.to == driver.PlaceTopic && m.try >= maxPublishTries {
		s.Emit(redeliver.PublishFailed{State: m.dec.State, Where: where, Err: err, Try: m.try, Retry: publishPause})
		m.setClosed(false, "", nil)
		m.delayPublish()
		m.write()
		return
	}
	if outage := s.doubts.concernsAll(where, err); !outage || !m.d.Lost() {
		m.setClosed(outage, where, err)
	}
	if m.pauses == nil {
		m.pauses = backoff.NewExponentialBackOff(backoff.WithInitialInterval(minWritePause),
			backoff.WithMaxInterval(maxWritePause), backoff.WithMaxElapsedTime(0))
	}
	wait := m.pauses.NextBackOff()
	s.Emit(redeliver.PublishFailed{State: m.dec.State, Where: where, Err: err, Try: m.try, Retry: wait})
	ctx, cancel := context.WithTimeout(m.d.Session(), wait) // the next try comes early when the lane ends
	context.AfterFunc(ctx, func() {
		cancel()
		m.write()
	})
}
