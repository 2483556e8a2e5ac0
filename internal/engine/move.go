package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// Pauses between the tries to write one message.
const (
	minWritePause = 100 * time.Millisecond
	maxWritePause = 10 * time.Second
)

// move writes one message to its next place: a level, the DLQ or its topic. No goroutine waits for that: the store calls
// Confirmed, and a timer starts the next try. While the broker accepts nothing, the subscription's gate is closed.
type move struct {
	d     *Delivery
	to    driver.Place
	dec   *redeliver.Decision // its State is written
	cause error               // of the failure
	hops  bool                // the message is only passed on: no handler failed
	from  string              // where the message was read from; set with hops, for the event

	try    int
	pauses backoff.BackOff // nil before the first failure
	closed bool            // this message has closed the gate
	doubt  doubtfulWrite
	wait   atomic.Pointer[writePause]
}

// writePause is a pause between two tries. It ends early when the lane ends.
type writePause struct {
	ended atomic.Bool
	timer *time.Timer
	stop  func() bool
}

// moveOn writes a message that failed to the place that dec asks for. The caller has claimed the message.
func (d *Delivery) moveOn(dec *redeliver.Decision, cause error) {
	d.decided(dec, cause)
	m := &move{d: d, to: driver.Level, dec: dec, cause: cause}
	if dec.Action == redeliver.DeadLetter {
		m.to = driver.DLQ
	}
	m.start()
}

// passOn writes a message to another place without calling its handler. The caller has claimed the message.
func (d *Delivery) passOn(to driver.Place, from string) {
	m := &move{d: d, to: to, dec: &redeliver.Decision{State: d.State()}, hops: true, from: from}
	if to == driver.Level {
		m.dec.State.Policy = d.sub.Fingerprint() // from now on the message waits on a level of this policy
	}
	m.start()
}

func (m *move) start() {
	m.d.c.handlerEnded()
	m.write()
}

// write tries to write the message once.
func (m *move) write() {
	if m.d.Lost() {
		m.abandon()
		return
	}
	if m.to == driver.DLQ && m.d.sub.Discards {
		m.discard()
		return
	}
	m.try++
	m.d.c.write(m.d.sub.tryContext(time.Now()), m.to, &m.dec.State, m)
}

// Confirmed implements [driver.Done].
func (m *move) Confirmed(where string, err error) {
	switch {
	case err == nil:
		m.finish(where)
	case errors.Is(err, driver.ErrStay):
		m.release()
		if m.hops { // no handler ran
			m.d.c.stay(&m.dec.State)
			return
		}
		m.d.sub.written(m.dec, where, m.cause)
		m.d.stayUntilDue(m.dec, m.cause)
	default:
		m.fail(where, err)
	}
}

// Unanswered implements [driver.Done].
func (m *move) Unanswered(where string, err error) {
	s := m.d.sub
	if !m.closed && !m.d.Lost() {
		m.closed = true
		s.pause(where, err)
	}
	s.Emit(redeliver.PublishFailed{State: m.dec.State, Where: where, Err: err, Try: m.try})
}

// finish ends a message whose copy is confirmed: its lane will settle it.
func (m *move) finish(where string) {
	s, d := m.d.sub, m.d
	s.doubts.addWrite(where, &m.doubt)
	m.release()
	isDead := m.dec.Action == redeliver.DeadLetter
	switch {
	case m.hops && !isDead && m.to == driver.Topic:
		s.Emit(redeliver.Published{State: m.dec.State, Topic: where})
	case m.hops && !isDead:
		s.Emit(redeliver.Hopped{State: m.dec.State, From: m.from, To: where})
	default:
		d.signal = signalOf(m.dec, m.cause)
		if isDead {
			s.slots.deadLettered(d.isProbe())
		}
		s.written(m.dec, where, m.cause)
		if isDead && s.Tracer != nil {
			d.traceDeadLetter(m.dec, where, m.cause)
		}
	}
	d.wrote, d.written = Moved, &m.dec.State
	if isDead {
		d.wrote = DeadLettered
	}
	d.c.end(resultForwarded)
}

// discard settles a dead letter of a subscription without a DLQ.
func (m *move) discard() {
	m.release()
	m.d.signal = signalOf(m.dec, m.cause)
	m.d.sub.slots.deadLettered(m.d.isProbe())
	m.d.sub.Emit(redeliver.Discarded{State: m.dec.State, Err: m.cause})
	m.d.c.end(resultForwarded)
}

// release opens the gate if this message has closed it, and forgets its doubtful write.
func (m *move) release() {
	m.d.sub.doubts.forget(&m.doubt)
	if m.closed {
		m.closed = false
		m.d.sub.resume()
	}
}

func (m *move) abandon() {
	m.release()
	m.d.abandoned(m.cause)
}

// fail handles a failed write. A refusal concerns this one message, which goes to the DLQ, without its body if
// necessary. After every other error the write is tried again.
func (m *move) fail(where string, err error) {
	s := m.d.sub
	err = s.doubts.classify(where, err, &m.doubt)
	refused := errors.Is(err, driver.ErrRefused)
	switch {
	case m.to != driver.DLQ && (refused || errors.Is(err, redeliver.ErrUnschedulable)):
		s.Policy.RejectUnschedulable(m.dec, err)
		if m.hops {
			m.cause = err
		}
		m.to = driver.DLQ
		m.write()
		return
	case m.to == driver.DLQ && refused && m.dec.State.Truncated != "":
		err = fmt.Errorf("the DLQ refuses even a message without its body: %v", err) //nolint:errorlint // It accepts nothing: this is an outage.
	case m.to == driver.DLQ && refused && m.d.c.truncates():
		body := m.d.c.body()
		m.dec.State.Truncated = fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256(body))
		s.Policy.RejectUnschedulable(m.dec, err)
		m.write()
		return
	}
	m.pause(where, err)
}

// pause sets the timer for the next try, and closes or opens the gate.
func (m *move) pause(where string, err error) {
	s := m.d.sub
	switch outage := s.doubts.concernsAll(where, err); {
	case m.closed && !outage:
		m.closed = false
		s.resume()
	case !m.closed && outage && !m.d.Lost():
		m.closed = true
		s.pause(where, err)
	}
	if m.pauses == nil {
		m.pauses = backoff.NewExponentialBackOff(backoff.WithInitialInterval(minWritePause),
			backoff.WithMaxInterval(maxWritePause), backoff.WithMaxElapsedTime(0))
	}
	wait := m.pauses.NextBackOff()
	s.Emit(redeliver.PublishFailed{State: m.dec.State, Where: where, Err: err, Try: m.try, Retry: wait})
	p := &writePause{}
	again := func() {
		if p.ended.Swap(true) {
			return
		}
		p.timer.Stop()
		p.stop()
		m.write()
	}
	m.wait.Store(p)
	ready := make(chan struct{})
	p.timer = time.AfterFunc(wait, func() { <-ready; again() })
	p.stop = context.AfterFunc(m.d.Session(), func() { <-ready; again() })
	close(ready)
}
