package redelivertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Subscriber delivers the messages of topics to the client's group; it is a
// Watermill subscriber and safe for concurrent use.
type Subscriber struct {
	client *Client
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	group  sync.WaitGroup
}

// Subscriber returns a subscriber of the client's group. Closing it (a Router
// does) ends its subscriptions, and not the client.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c}
	s.ctx, s.stop = context.WithCancel(context.Background())
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Subscribe joins the group for a topic, which need not exist, and delivers its
// messages, the oldest first, until ctx ends or the subscriber is closed. Every
// call is a member of its own. The messages of one key run one after another,
// and beside them one retry; a failed message is overtaken by later ones of its
// key, where Policy.Order says nothing else. One that is nacked has failed an attempt.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b := s.client.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := s.client.alive(); err != nil {
		return nil, err
	}
	if s.ctx.Err() != nil || s.client.closing {
		return nil, errClosed
	}
	r := newReader(context.WithoutCancel(ctx), s.client, b.queue(topic, s.client.cfg.Group))
	b.readers = append(b.readers, r)
	run, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	s.group.Go(func() {
		defer stop()
		defer cancel()
		r.run(run)
	})
	return r.out, nil
}

// Close ends all subscriptions and returns when their channels are closed. It
// waits for messages in flight, up to Config.DrainTimeout; then their contexts
// end and they are delivered again.
func (s *Subscriber) Close() error {
	b := s.client.b
	b.mu.Lock() // nobody is just subscribing
	s.stop()
	b.mu.Unlock()
	s.group.Wait()
	return nil
}

var _ message.Subscriber = (*Subscriber)(nil)

// reader is one Subscribe. But for what the broker's mu guards, it belongs to
// the goroutine that runs it.
type reader struct {
	client *Client
	q      *queue
	fwd    *forwarder
	sub    *delayqueue.Subscription
	jitter time.Duration
	out    chan *message.Message
	poke   chan struct{}   // something has changed at the broker
	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc

	hold   *delayqueue.Hold[*entry]
	due    delayqueue.FIFO[*entry] // waited long enough
	next   *entry                  // in flight, and waits for somebody to take it
	flight *delayqueue.Flight[*entry]

	firsts, retries int // the broker's: what runs
}

func newReader(values context.Context, c *Client, q *queue) *reader {
	p := c.cfg.policy(q.topic)
	fwd := &forwarder{client: c, q: q, ladder: delayqueue.NewLadder(p), print: delayqueue.Fingerprint(p)}
	r := &reader{
		client: c, q: q, fwd: fwd, out: make(chan *message.Message), poke: make(chan struct{}, 1),
		hold: delayqueue.NewHold[*entry](1 << 30), flight: delayqueue.NewFlight[*entry](),
		sub: &delayqueue.Subscription{
			Origin: q.topic, Group: q.group, Policy: p, Scheduler: fwd, DeadLetters: fwd, Sink: c.told(q), Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout,
			MaxInFlight: c.cfg.MaxInFlight, Blocking: p.Order == redeliver.Blocking,
		},
	}
	r.sub.Shrink(c.cfg.MinInFlight, 2*c.cfg.MaxInFlight)
	r.flight.Bound(&r.sub.Throttle)
	_, r.jitter, _ = p.Delays()
	r.ctx, r.cancel = context.WithCancelCause(values)
	return r
}

// run delivers until ctx ends, then waits for what is in flight.
func (r *reader) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer r.end()
	defer r.sub.Watched()()
	defer r.sub.Carry(r.flight.Load)()
	for {
		r.flight.Poll(r.land)
		r.receive()
		r.prepare(time.Now())
		r.flight.Watch()
		r.flight.Holds(r.hold.Len() + r.due.Len())
		out, msg := r.offer()
		timer.Reset(r.patience(time.Now()))
		select {
		case out <- msg:
			r.sent()
		case <-r.flight.Bell():
			r.flight.Poll(r.land)
		case <-r.poke:
		case <-r.opened():
		case <-r.room():
		case <-timer.C:
		case <-r.ctx.Done(): // killed
			return
		case <-ctx.Done():
			r.drain()
			return
		}
	}
}

// offer is what somebody may take now.
func (r *reader) offer() (chan<- *message.Message, *message.Message) {
	if r.next == nil {
		return nil, nil
	}
	return r.out, r.next.msg
}

func (r *reader) sent() {
	r.q.handed(r.next.it, r)
	r.flight.Handed(r.next)
	r.next = nil
}

// opened is closed when a gate that is closed opens.
func (r *reader) opened() <-chan struct{} {
	if r.sub.Gate.Closed() {
		return r.sub.Gate.Opened()
	}
	return nil
}

// room is closed when there is room for a message that waits for some.
func (r *reader) room() <-chan struct{} {
	if r.sub.Gate.Closed() {
		return nil
	}
	return r.flight.Waits()
}

// patience is how long the reader may sleep.
func (r *reader) patience(now time.Time) time.Duration {
	if at, ok := r.hold.Next(); ok {
		return max(0, at.Sub(now))
	}
	return redeliver.MaxWait
}

// drain gives back what does not run, and waits for what does.
func (r *reader) drain() {
	r.sub.Drain.Begin()
	defer r.sub.Drain.End()
	if r.next != nil {
		r.land(r.next, delayqueue.Abandoned)
		r.next = nil
	}
	r.flight.Holds(0) // it is given up
	r.q.leave(r)
	deadline := time.NewTimer(r.client.cfg.DrainTimeout)
	defer deadline.Stop()
	for {
		r.flight.Poll(r.land)
		r.flight.Watch()
		if r.flight.Len() == 0 {
			return
		}
		select {
		case <-r.flight.Bell():
			r.flight.Poll(r.land)
		case <-deadline.C:
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// end ends the contexts of what is left, and gives it back.
func (r *reader) end() {
	r.cancel(errClosed)
	r.flight.Close()
	b := r.q.b
	b.mu.Lock()
	for _, it := range r.q.items {
		if it.owner == r {
			r.q.free(it)
		}
	}
	b.readers = slices.DeleteFunc(b.readers, func(other *reader) bool { return other == r })
	b.change()
	b.mu.Unlock()
	close(r.out)
}
