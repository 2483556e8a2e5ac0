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

	out     chan *record
	room    chan struct{} // has one while the lane takes one more
	asked   bool          // room has had one since the last record
	stopped chan struct{} // closed when nothing more is to be read
	pumped  chan struct{} // closed when nothing more is
	lane    driver.Lane[*record]
	acked   *message.Message // the last, as long as the subscriber may still be at it
}

var _ driver.Source[*record] = (*source)(nil)

const (
	// ackPatience is how long a source that ends waits for the subscriber to report the last ack to its broker: it does
	// that after Ack, within the context that is about to be cancelled. Then it ends the message's own context.
	ackPatience = 2 * time.Second
	// ackUnseen is that time for a message whose context never ends.
	ackUnseen = 200 * time.Millisecond

	// skew is how far this host's clock may be behind that of the one that let a message go when it was due.
	skew = time.Second
)

var errGone = errors.New("the subscriber has taken the message back")

// subscribe makes a source. The end of Subscribe's context would cut off what is in flight, so the source has another one.
func (r *reader) subscribe(ctx context.Context, in input) (*source, error) {
	messages, cancel, err := subscribe(ctx, r.values, r.client.cfg.Subscriber, in.topic)
	if err != nil {
		return nil, err
	}
	return &source{
		input: in, r: r, in: messages, cancel: cancel, out: make(chan *record, 1), room: make(chan struct{}, 1),
		stopped: make(chan struct{}), pumped: make(chan struct{}),
	}, nil
}

// run reads the source with a lane of its own until ctx ends, or the user's subscriber closes the channel. A delay topic needs
// no slot: its messages go on to other topics.
func (s *source) run(ctx context.Context, e *engine.Engine[*record]) {
	opt := engine.LaneOptions[*record]{MaxAhead: 1, MaxHeld: 1, DrainTimeout: s.r.client.cfg.DrainTimeout, Exclusive: s.kind == delays}
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*record]) {
		s.lane = l
		go s.pump()
	})
}

// pump reads a message whenever the lane takes one more: a subscriber may deliver others before that is acked.
func (s *source) pump() {
	defer close(s.pumped)
	defer close(s.out)
	for {
		select {
		case <-s.room:
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
	case n > 0 && !s.asked:
		s.asked = true
		s.room <- struct{}{}
	case n == 0 && s.asked:
		select {
		case <-s.room:
			s.asked = false
		default: // it is read already
		}
	}
}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	close(s.stopped)
	return s.pumped
}

// Parse implements [driver.Source]. It believes what stands in our entry of the message, where redeliver writes, as far as that
// can be right. It reports what is wrong: the message is written anew when it goes on.
func (s *source) Parse(m *driver.Message[*record]) error {
	rec, lay, now := m.Record, s.r.layout, time.Now()
	s.asked, s.acked = false, nil
	s.watch(m)
	if s.kind == origin {
		if found := rec.strangers(); found != nil {
			s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: rec.id(), Findings: found})
		}
		return nil
	}
	a := delayqueue.Arrival{Group: lay.group, Origin: lay.topic, Written: now, Now: now} // nothing says when it was written
	if s.kind == delays {
		a.Ladder, a.Leaves = lay.ladder, rec.until
		a.Level = lay.level(s.nth, rec.until.Sub(now))
	}
	stay := delayqueue.Arrive(&a, rec.headers, rec.id)
	rec.state = stay.State
	rec.state.Expires = rec.expires()
	rec.publish = rec.publish && stay.Publish
	if len(stay.Findings) > 0 {
		s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: stay.State.ID, Findings: stay.Findings})
	}
	s.r.sub.Met(stay.State)
	m.Retry, m.Place, m.Until = true, s.topic, stay.Until
	switch longer := stay.Until.Sub(now); {
	case s.kind == back && longer > skew, s.kind == delays && longer > lay.stay(s.nth)+slack:
		// An older policy has put it here, or nobody of ours: it moves to its own place and holds up nobody.
		m.Step, m.Until = driver.Hop, time.Time{}
	case s.kind == delays && rec.publish && !stay.Hops:
		m.Step = driver.Publish
	case s.kind == delays:
		m.Step = driver.Hop
	}
	return nil
}

// watch has the lane abandon a message when the subscriber takes it back.
func (s *source) watch(m *driver.Message[*record]) {
	rec := m.Record
	rec.unwatch = context.AfterFunc(rec.raw.Context(), func() {
		s.lane.Post(func() {
			s.lane.Abandon(m, errGone)
			rec.raw.Nack()
		})
	})
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*record]) {
	rec := m.Record
	rec.unwatch() // whatever becomes of its context now, it was not lost
	rec.raw.Ack()
	s.acked = rec.raw
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
	awaitAck(ctx, s.acked)
	s.cancel()
	go giveBack(s.in)
}

// awaitAck waits until the subscriber has reported an ack to its broker, or has had the time; nil for none.
func awaitAck(ctx context.Context, acked *message.Message) {
	if acked == nil {
		return
	}
	patience := ackPatience
	done := acked.Context().Done()
	if done == nil {
		patience = ackUnseen
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}
