package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// inputKind is the kind of an input.
type inputKind uint8

const (
	origin  inputKind = iota
	retries           // the retry topic
	delays            // a delay topic
)

// input is a topic that is read. When its Subscribe ends, it gets a new one.
type input struct {
	kind  inputKind
	topic string
	nth   int // number of the delay topic, from 0
}

// source is one Subscribe of the user's subscriber. It delivers one message at a time, and the next one after an ack.
// It implements driver.Source. The lane's goroutine owns it, except for the fields that readMessages uses.
type source struct {
	input
	r      *reader
	in     <-chan *message.Message // the channel of the user's subscriber
	cancel context.CancelFunc      // ends the Subscribe

	out         chan *record
	requests    chan struct{} // has one value while the lane accepts one more message
	requested   bool          // requests got a value since the last record
	stopped     chan struct{} // closed when reading must stop
	readingDone chan struct{} // closed when reading has stopped
	lane        driver.Lane[*record]
	lastAcked   *message.Message // kept while the subscriber may still process the ack
}

var _ driver.Source[*record] = (*source)(nil)

const (
	// ackTimeout bounds how long an ending source waits until the subscriber has sent the last ack to its broker. Subscribers do
	// that after Ack has returned, within a context that the source is about to cancel. Then they end the message's own context.
	ackTimeout = 2 * time.Second
	// ackTimeoutWithoutContext is ackTimeout for a message whose context never ends.
	ackTimeoutWithoutContext = 200 * time.Millisecond

	// clockSkew is how far this host's clock may be behind that of the host that released a message when it was due.
	clockSkew = time.Second
)

var errTakenBack = errors.New("the subscriber has taken the message back")

// subscribe returns a source. The source has its own context, because the end of Subscribe's context would end messages in
// flight.
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

// run reads the source with its own lane until ctx ends or the user's subscriber closes the channel. A delay topic
// needs no slot, because its messages move to other topics.
func (s *source) run(ctx context.Context, e *engine.Engine[*record]) {
	opt := engine.LaneOptions[*record]{MaxAhead: 1, MaxWaiting: 1, DrainTimeout: s.r.client.cfg.DrainTimeout, Exclusive: s.kind == delays}
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*record]) {
		s.lane = l
		go s.readMessages()
	})
}

// readMessages reads one message for each request of the lane, because a subscriber may deliver more before an ack.
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
			s.out <- newRecord(raw, s.kind != origin) // never blocks: the lane has taken the previous one
		case <-s.stopped:
			return
		}
	}
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *record { return s.out }

// Lost implements [driver.Source]. Messages are lost one by one, see abandonWhenTakenBack.
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
		default: // already used
		}
	}
}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	close(s.stopped)
	return s.readingDone
}

// Parse implements [driver.Source]. On redeliver's topics it trusts the plausible parts of the message's state. It
// reports the others, and the next write corrects them.
func (s *source) Parse(m *driver.Message[*record]) error {
	rec, lay, now := m.Record, s.r.layout, time.Now()
	m.Size = binding.SizeOf(rec.raw)
	s.requested, s.lastAcked = false, nil
	s.abandonWhenTakenBack(m)
	if s.kind == origin {
		if found := rec.foreignEntries(); found != nil {
			s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: rec.id(), Findings: found})
		}
		return nil
	}
	a := delayqueue.Arrival{Group: lay.group, Origin: lay.topic, Written: now, Now: now} // the time of writing is unknown
	if s.kind == delays {
		a.Ladder, a.Leaves = lay.ladder, rec.until
		a.Level = lay.levelOf(s.nth, rec.until.Sub(now))
	}
	stay := delayqueue.Arrive(&a, rec.headers, rec.id)
	rec.state = stay.State
	rec.state.Expires = rec.expires()
	rec.publish = rec.publish && stay.Publish
	if len(stay.Findings) > 0 {
		s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: stay.State.ID, Findings: stay.Findings})
	}
	s.r.sub.CheckPolicyOf(stay.State)
	m.Retry, m.Place, m.Until = true, s.topic, stay.Until
	switch longer := stay.Until.Sub(now); {
	case s.kind == retries && longer > clockSkew, s.kind == delays && s.nth < len(lay.ladder) && longer > lay.maxStay(s.nth)+levelSlack:
		// Another policy or program put the message here. Move it to the topic of its level, so that it delays no other. That
		// is never an earlier topic, so two policies cannot move it to and fro: a topic without a level is left as it is.
		m.Step, m.Until = driver.StepHop, time.Time{}
	case s.kind == delays && rec.publish && !stay.Hops:
		m.Step = driver.StepPublish
	case s.kind == delays:
		m.Step = driver.StepHop
	}
	return nil
}

// abandonWhenTakenBack makes the lane abandon a message when the subscriber takes it back, by ending its context.
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
	rec.unwatch() // from here the end of its context does not mean that it is lost
	rec.raw.Ack()
	s.lastAcked = rec.raw
}

// Return implements [driver.Source]. Watermill subscribers cannot delay the return of a message.
func (s *source) Return(m *driver.Message[*record], _ time.Duration, _ bool) {
	m.Record.unwatch()
	m.Record.raw.Nack()
}

// Commit implements [driver.Source].
func (s *source) Commit() {}

// Flush implements [driver.Source]. It nacks the messages that the subscriber still delivers.
func (s *source) Flush(ctx context.Context) {
	awaitAck(ctx, s.lastAcked)
	s.cancel()
	go nackAll(s.in)
}

// awaitAck waits until the subscriber has sent an ack to its broker, or has had time for it. acked may be nil.
func awaitAck(ctx context.Context, acked *message.Message) {
	if acked == nil {
		return
	}
	timeout := ackTimeout
	done := acked.Context().Done()
	if done == nil {
		timeout = ackTimeoutWithoutContext
	}
	select {
	case <-done:
	case <-time.After(timeout):
	case <-ctx.Done():
	}
}
