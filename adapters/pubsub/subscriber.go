package pubsub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Subscriber delivers the messages of topics, retries included; it is a Watermill
// subscriber and safe for concurrent use.
type Subscriber struct {
	client  *Client
	readers *delayqueue.Readers
}

func newSubscriber(c *Client) *Subscriber {
	return &Subscriber{client: c, readers: delayqueue.NewReaders(errClosed)}
}

// Subscribe reads a topic and all that comes back to the group from where it
// waits, and delivers messages until ctx ends or the subscriber is closed. Each
// call makes as many Subscribes of the user's subscriber as Config.MaxInFlight
// says, as many again for retries, and one for each of the eight delay topics.
// When one of them cannot be made, its error is returned.
//
// A message is done when it is acked. One that is nacked has failed an attempt:
// the policy decides, as for an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		l, err := within(ctx, "pubsub: making the topics of "+topic, func() (*layout, error) { return s.client.ready(topic) }, func(*layout) {})
		if err != nil {
			return nil, err
		}
		r := newReader(context.WithoutCancel(ctx), s.client, l)
		if err := r.subscribe(ctx); err != nil {
			return nil, err
		}
		out = r.out
		return r.run, nil
	})
	return out, err
}

// SubscribeInitialize has the user's subscriber initialize the topic and ours,
// where it can. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if _, err := s.client.ready(topic); err != nil {
		return err
	}
	if init, ok := s.client.cfg.Subscriber.(message.SubscribeInitializer); ok {
		return init.SubscribeInitialize(topic)
	}
	return nil
}

// Close ends all subscriptions and returns when their channels are closed. It
// waits for messages in flight, up to Config.DrainTimeout; then their contexts
// are cancelled and they come back.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

// reader is one Subscribe: its lanes.
type reader struct {
	client *Client
	layout *layout
	sub    *delayqueue.Subscription
	fwd    *forwarder
	out    chan *message.Message
	values context.Context // the Subscribe context's values, never its end
	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc
	lanes  []*lane

	inHand  atomic.Int64
	running atomic.Int64 // of those, in flight

	mu   sync.Mutex
	down int                 // lanes without a subscription
	live map[*entry]struct{} // in hand
}

func newReader(values context.Context, c *Client, l *layout) *reader {
	fwd := &forwarder{cfg: &c.cfg, layout: l}
	r := &reader{
		client: c, layout: l, fwd: fwd, values: values, out: make(chan *message.Message), live: make(map[*entry]struct{}),
		sub: &delayqueue.Subscription{
			Origin: l.topic, Group: l.group, Policy: l.policy, Scheduler: fwd, DeadLetters: fwd,
			Sink: c.cfg.Sink, Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, MaxInFlight: c.cfg.MaxInFlight, Values: values,
		},
	}
	r.sub.Shrink(c.cfg.MinInFlight, 2*c.cfg.MaxInFlight)
	r.ctx, r.cancel = context.WithCancelCause(values)
	for i := range l.delays {
		r.lanes = append(r.lanes, &lane{r: r, kind: delayLane, topic: l.delays[i], nth: i})
	}
	for range c.cfg.MaxInFlight {
		r.lanes = append(r.lanes, &lane{r: r, kind: backLane, topic: l.back}, &lane{r: r, kind: originLane, topic: l.topic})
	}
	return r
}

// subscribe makes all subscriptions, or none.
func (r *reader) subscribe(ctx context.Context) error {
	for i, l := range r.lanes {
		if err := l.subscribe(ctx); err != nil {
			for _, made := range r.lanes[:i] {
				made.leave()
			}
			r.cancel(errClosed)
			return err
		}
	}
	return nil
}

// run delivers until ctx ends, then waits for what is in flight.
func (r *reader) run(ctx context.Context) {
	defer close(r.out)
	defer r.sub.Watched()()
	defer r.sub.Carry(r.load)()
	defer r.cancel(errClosed)
	r.tell(redeliver.ChangeConsuming, "", nil)
	var all sync.WaitGroup
	for _, l := range r.lanes {
		all.Go(func() { l.run(ctx) })
	}
	<-ctx.Done()
	r.sub.Drain.Begin()
	defer r.sub.Drain.End()
	deadline := time.AfterFunc(r.client.cfg.DrainTimeout, r.giveUp)
	defer deadline.Stop()
	all.Wait()
}

// lost tells once that lanes have no subscription, found that all have one again.
func (r *reader) lost(topic string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // behind the telling: what is told last is what is
	if r.down++; r.down == 1 {
		r.tell(redeliver.ChangeDisconnected, "reading "+topic+"; subscribing again with backoff", err)
	}
}

func (r *reader) found() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down--; r.down == 0 {
		r.tell(redeliver.ChangeConsuming, "", nil)
	}
}

func (r *reader) tell(change redeliver.Change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.layout.topic, Group: r.layout.group, Change: change, Detail: detail, Err: err})
}
