package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// inputKind is what an input is.
type inputKind uint8

const (
	origin inputKind = iota
	back             // what comes back to the group
	delays           // what waits
)

// input is a topic that is read, by a Subscribe of the user's subscriber, and by another one when that has ended.
type input struct {
	kind  inputKind
	topic string
	nth   int // of the delay topics, from 0
}

// source is one Subscribe of the user's subscriber, which delivers one message at a time and the next one when that is acked.
// It implements driver.Source. All of it belongs to the lane's goroutine, but for what pump reads.
type source struct {
	input
	r      *reader
	in     <-chan *message.Message // the user's subscriber's
	cancel context.CancelFunc      // ends the Subscribe

	out         chan *record
	requests    chan struct{} // has one while the lane takes one more
	requested   bool          // room has had one since the last record
	stopped     chan struct{} // closed when nothing more is to be read
	readingDone chan struct{} // closed when nothing more is
	lane        driver.Lane[*record]
	lastAcked   *message.Message // the last, as long as the subscriber may still be at it
}

var _ driver.Source[*record] = (*source)(nil)

const (
	// ackTimeout is how long a source that ends waits for the subscriber to report the last ack to its broker: it does
	// that after Ack, within the context that is about to be cancelled. Then it ends the message's own context.
	ackTimeout = 2 * time.Second
	// ackTimeoutWithoutContext is that time for a message whose context never ends.
	ackTimeoutWithoutContext = 200 * time.Millisecond

	// clockSkew is how far this host's clock may be behind that of the one that let a message go when it was due.
	clockSkew = time.Second
)

var errTakenBack = errors.New("the subscriber has taken the message back")

// subscribe makes a source. The end of Subscribe's context would cut off what is in flight, so the source has another one.
func (r *reader) subscribe(ctx context.Context, in input) (*source, error) {
	messages, cancel, err := subscribe(ctx, r.values, r.client.cfg.Subscriber, in.topic)
	if err != nil {
		return nil, err
	}
	return &source{
		input: in, r: r, in: messages, cancel: cancel, out: make(chan *record, 1), requests: make(chan struct{}, 1),
		stopped: make(chan struct{}), readingDone: make(chan struct{}),
	}, nil
}

// run reads the source with a lane of its own until ctx ends, or the user's subscriber closes the channel. A delay topic needs
// no slot: its messages go on to other topics.
func (s *source) run(ctx context.Context, e *engine.Engine[*record]) {
	opt := engine.LaneOptions[*record]{MaxAhead: 1, MaxHeld: 1, DrainTimeout: s.r.client.cfg.DrainTimeout, Exclusive: s.kind == delays}
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*record]) {
		s.lane = l
		go s.readMessages()
	})
}

// readMessages reads a message whenever the lane takes one more: a subscriber may deliver others before that is acked.
func (s *source) readMessages() {
	defer close(s.readingDone)
	defer close(s.out)
	for {
		select {
		case <-s.requests:
		case <-s.stopped:
			return
		}
		select {
		case raw, ok := <-s.in:
			if !ok {
				return
			}
			s.out <- newRecord(raw, s.kind != origin) // has room: the lane has taken the one before
		case <-s.stopped:
			return
		}
	}
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *record { return s.out }

// Lost implements [driver.Source]. Each message is lost by itself, see watch.
func (s *source) Lost() <-chan struct{} { return nil }

// Accept implements [driver.Source].
func (s *source) Accept(n int) {
	switch {
	case n > 0 && !s.requested:
		s.requested = true
		s.requests <- struct{}{}
	case n == 0 && s.requested:
		select {
		case <-s.requests:
			s.requested = false
		default: // it is read already
		}
	}
}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	close(s.stopped)
	return s.readingDone
}

// Parse implements [driver.Source]. It believes what stands in our entry of the message, where redeliver writes, as far as that
// can be right. It reports what is wrong: the message is written anew when it goes on.
func (s *source) Parse(m *driver.Message[*record]) error {
	rec, lay, now := m.Record, s.r.layout, time.Now()
	s.requested, s.lastAcked = false, nil
	s.abandonWhenTakenBack(m)
	if s.kind == origin {
		if found := rec.foreignEntries(); found != nil {
			s.r.sub.Tell(redeliver.HeadersIgnored{Topic: s.topic, ID: rec.id(), Findings: found})
		}
		return nil
	}
	a := delayqueue.Arrival{Group: lay.group, Origin: lay.topic, Written: now, Now: now} // nothing says when it was written
	if s.kind == delays {
		a.Ladder, a.Leaves = lay.ladder, rec.until
		a.Level = lay.levelOf(s.nth, rec.until.Sub(now))
	}
	stay := delayqueue.Arrive(&a, rec.headers, rec.id)
	rec.state = stay.State
	rec.state.Expires = rec.expires()
	rec.publish = rec.publish && stay.Publish
	if len(stay.Findings) > 0 {
		s.r.sub.Tell(redeliver.HeadersIgnored{Topic: s.topic, ID: stay.State.ID, Findings: stay.Findings})
	}
	s.r.sub.Met(stay.State)
	m.Retry, m.Place, m.Until = true, s.topic, stay.Until
	switch longer := stay.Until.Sub(now); {
	case s.kind == back && longer > clockSkew, s.kind == delays && longer > lay.maxStay(s.nth)+levelSlack:
		// An older policy has put it here, or nobody of ours: it moves to its own place and holds up nobody.
		m.Step, m.Until = driver.Hop, time.Time{}
	case s.kind == delays && rec.publish && !stay.Hops:
		m.Step = driver.Publish
	case s.kind == delays:
		m.Step = driver.Hop
	}
	return nil
}

// abandonWhenTakenBack has the lane abandon a message when the subscriber takes it back.
func (s *source) abandonWhenTakenBack(m *driver.Message[*record]) {
	rec := m.Record
	rec.unwatch = context.AfterFunc(rec.raw.Context(), func() {
		s.lane.Post(func() {
			s.lane.Abandon(m, errTakenBack)
			rec.raw.Nack()
		})
	})
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*record]) {
	rec := m.Record
	rec.unwatch() // whatever becomes of its context now, it was not lost
	rec.raw.Ack()
	s.lastAcked = rec.raw
}

// Return implements [driver.Source]. No Watermill subscriber can give a message back for later.
func (s *source) Return(m *driver.Message[*record], _ time.Duration, _ bool) {
	m.Record.unwatch()
	m.Record.raw.Nack()
}

// Commit implements [driver.Source].
func (s *source) Commit() {}

// Flush implements [driver.Source]. What the subscriber still has is given back.
func (s *source) Flush(ctx context.Context) {
	awaitAck(ctx, s.lastAcked)
	s.cancel()
	go nackAll(s.in)
}

// awaitAck waits until the subscriber has reported an ack to its broker, or has had the time; nil for none.
func awaitAck(ctx context.Context, acked *message.Message) {
	if acked == nil {
		return
	}
	timeout := ackTimeout
	done := acked.Context().Done()
	if done == nil {
		timeout = ackTimeoutWithoutContext
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}
