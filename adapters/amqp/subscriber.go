package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Subscriber delivers the messages of queues; it is a Watermill subscriber and
// safe for concurrent use.
type Subscriber struct {
	client  *Client
	readers *delayqueue.Readers
}

func newSubscriber(c *Client) *Subscriber {
	return &Subscriber{client: c, readers: delayqueue.NewReaders(errors.New("amqp: the subscriber is closed"))}
}

// Subscribe reads the queue of a topic and its retries, after it has declared
// what it needs, and delivers messages until ctx ends or the subscriber is
// closed. Every call is a consumer of its own.
//
// Up to Config.MaxInFlight first deliveries and Config.MaxRetriesInFlight retries
// are on their way at once. A message is done when it is acked. One that is
// nacked has failed an attempt: the policy decides, as for an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r, err := s.client.reader(ctx, topic)
		if err != nil {
			return nil, err
		}
		if err := s.client.begin(ctx, r); err != nil {
			s.client.unclaim(len(r.queues))
			return nil, err
		}
		out = make(chan *message.Message, min(outAhead, s.client.cfg.MaxInFlight))
		r.out = out
		return func(ctx context.Context) {
			defer s.client.unclaim(len(r.queues))
			r.run(ctx)
		}, nil
	})
	return out, err
}

// reader makes what reads a topic's queue, and declares or checks before what it
// needs. It reads nothing yet: see begin. It has ctx's values, not its end.
func (c *Client) reader(ctx context.Context, topic string) (*reader, error) {
	l, err := c.ready(ctx, topic)
	if err != nil {
		return nil, err
	}
	r := newReader(context.WithoutCancel(ctx), c, l)
	r.queues = r.lanes()
	return r, c.claim(l.queue, len(r.queues))
}

// Close ends all subscriptions and returns when their channels are closed. It
// waits for messages in flight, up to Config.DrainTimeout; then their contexts
// are cancelled and they stay unacked.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

// outAhead is how many messages may lie ready for a consumer that is busy: they
// hold slots, and spare both sides a switch for every message.
const outAhead = 64

// reader is one Subscribe: it reads the queue, the short levels, the queue from
// which retries come back, and the queue of suspects, each by a lane.
type reader struct {
	client *Client
	layout *layout
	sub    *delayqueue.Subscription
	fwd    *forwarder
	out    chan *message.Message // nil with native
	native *native               // nil with out
	values context.Context       // the Subscribe context's values, never its end
	queues []laneConfig

	mu   sync.Mutex
	up   map[string]*amqp.Channel // those that consume, by queue
	lost bool                     // and it was told
}

func newReader(values context.Context, c *Client, l *layout) *reader {
	fwd := &forwarder{sender: c.forwarded, layout: l, declare: func(ctx context.Context) error { return c.restore(ctx, l) }}
	r := &reader{
		client: c, layout: l, fwd: fwd, values: values, up: make(map[string]*amqp.Channel),
		sub: &delayqueue.Subscription{
			Origin: l.queue, Group: l.queue, Policy: l.policy, Scheduler: fwd, DeadLetters: fwd,
			Sink: c.cfg.Sink, Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, MaxInFlight: c.cfg.MaxInFlight, Blocking: l.ordered(),
		},
	}
	if l.policy.Order == redeliver.PerKey {
		r.sub.LongestBlock = c.cfg.ConsumerTimeout / 2
	}
	r.sub.Shrink(c.cfg.MinInFlight, c.cfg.MaxInFlight+c.cfg.MaxRetriesInFlight)
	return r
}

// lanes says which queues are read, and how.
func (r *reader) lanes() []laneConfig {
	cfg := r.client.cfg
	slots := make(chan struct{}, cfg.MaxRetriesInFlight)
	back := cfg.retryPrefetch(r.layout.policy)
	shard := max(back/r.layout.shards, min(back, cfg.MaxRetriesInFlight)) // its messages are spread evenly
	all := []laneConfig{
		{kind: mainQueue, queue: r.layout.queue, prefetch: cfg.prefetch(r.layout.policy), slots: make(chan struct{}, cfg.MaxInFlight)},
		{kind: retryQueue, queue: r.layout.retry(), prefetch: min(back, maxUnrunPerSlot*cfg.MaxRetriesInFlight), slots: slots},
		{kind: suspectQueue, queue: r.layout.suspects(), slots: make(chan struct{}, 1)},
	}
	for _, q := range r.layout.queues {
		if q.kind == delayQueue && q.read() {
			all = append(all, laneConfig{kind: delayQueue, queue: q.name, level: q.level, prefetch: shard, slots: slots})
		}
	}
	return all
}

// run reads until ctx ends, then closes the channel.
func (r *reader) run(ctx context.Context) {
	if r.out != nil {
		defer close(r.out)
	}
	defer r.sub.Watched()()
	var all sync.WaitGroup
	all.Go(func() { r.compare(ctx) })
	for _, cfg := range r.queues {
		all.Go(func() { r.keep(ctx, cfg) })
	}
	all.Wait()
}

// keep has a lane read its queue, and another one, on a new channel, whenever
// that fails. Between failures it pauses with backoff.
func (r *reader) keep(ctx context.Context, cfg laneConfig) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	defer func() {
		if cfg.first != nil { // it was over before it began
			_ = cfg.first.ch.Close() // nothing was acked on it
		}
	}()
	for ctx.Err() == nil {
		began := time.Now()
		err := r.consume(ctx, cfg)
		cfg.first = nil // it is used up
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errTired) {
			continue
		}
		if time.Since(began) > 10*time.Second {
			pause.Reset()
		}
		timer := time.NewTimer(pause.NextBackOff())
		r.disconnected(cfg.queue, err)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// consume reads a queue on a channel of its own until the channel ends.
func (r *reader) consume(ctx context.Context, cfg laneConfig) error {
	var ch *amqp.Channel
	var in <-chan amqp.Delivery
	var err error
	if cfg.first != nil {
		ch, in = cfg.first.ch, cfg.first.in
	} else {
		ch, in, err = r.open(ctx, cfg)
	}
	if gone(err) {
		// It was deleted under us. What is ours, or would be, is declared anew.
		if err = r.client.restore(ctx, r.layout); err == nil {
			ch, in, err = r.open(ctx, cfg)
		}
	}
	if err != nil {
		return err
	}
	l := newLane(r, cfg, ch, in)
	if cfg.kind == suspectQueue {
		fed := make(chan amqp.Delivery)
		l.in = fed
		var feeding sync.WaitGroup
		defer feeding.Wait()
		feeding.Go(func() { l.feed(ctx, fed) })
	}
	r.consuming(cfg.queue, ch)
	defer r.stopped(cfg.queue)
	err = l.run(ctx)
	if l.paused { // while the broker takes nothing, what comes back is counted and cannot be written anew
		select {
		case <-r.client.publishing.blocked.Opened():
		case <-ctx.Done():
		}
	}
	return err
}

// disconnected tells once that a queue cannot be read; consuming tells when all
// can be again.
func (r *reader) disconnected(queue string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // behind the telling: what is told last is what is
	if !r.lost {
		r.tell(redeliver.ChangeDisconnected, "reading "+queue+"; trying again with backoff", err)
	}
	r.lost = true
}

func (r *reader) consuming(queue string, ch *amqp.Channel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up[queue] = ch
	all := len(r.up) == len(r.queues)
	for _, ch := range r.up { // a lane may not have seen yet that its channel is gone
		all = all && !ch.IsClosed()
	}
	r.lost = r.lost && !all
	if all {
		r.tell(redeliver.ChangeConsuming, "", nil)
	}
}

func (r *reader) stopped(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.up, queue)
}

func (r *reader) tell(change redeliver.Change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.layout.queue, Group: r.layout.queue, Change: change, Detail: detail, Err: err})
}
