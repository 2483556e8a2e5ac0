package sqs

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

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
	return &Subscriber{client: c, readers: delayqueue.NewReaders(errors.New("sqs: the subscriber is closed"))}
}

// Subscribe reads the queue of a topic, retries included, after it has created
// what is missing, and delivers messages until ctx ends or the subscriber is
// closed. Every call is a consumer of its own.
//
// Up to Config.MaxInFlight first deliveries and Config.MaxRetriesInFlight retries
// are on their way at once. A message is done when it is acked. One that is
// nacked has failed an attempt: the policy decides, as for an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		l, err := s.client.ready(ctx, topic)
		if err != nil {
			return nil, err
		}
		r := newReader(context.WithoutCancel(ctx), s.client, l)
		out = r.out
		return r.run, nil
	})
	return out, err
}

// SubscribeInitialize creates what a subscription of the topic needs and is
// missing. Watermill's components call it.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	defer cancel()
	_, err := s.client.ready(ctx, topic)
	return err
}

// Close ends all subscriptions and returns when their channels are closed. It
// waits for messages in flight and for short receives, up to Config.DrainTimeout;
// then they are cancelled, and their messages come back. Long receives of standard
// queues are cut short, see Config.WaitTime.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

// outAhead is how many messages may lie ready for a consumer that is busy: they
// hold slots, and spare both sides a switch for every message.
const outAhead = 64

// reader is one Subscribe: it reads the queue and the queue of suspects, each by
// a lane.
type reader struct {
	client   *Client
	layout   *layout
	sub      *delayqueue.Subscription
	fwd      *forwarder
	out      chan *message.Message // nil with consumer
	consumer *consumer             // nil with out
	values   context.Context       // the Subscribe context's values, never its end
	poke     chan struct{}         // there is a suspect

	mu       sync.Mutex
	up, lost bool // and that was told
}

func newReader(values context.Context, c *Client, l *layout) *reader {
	fwd := &forwarder{client: c, layout: l}
	r := &reader{
		client: c, layout: l, fwd: fwd, values: values, poke: make(chan struct{}, 1),
		out: make(chan *message.Message, min(outAhead, c.cfg.MaxInFlight)),
		sub: &delayqueue.Subscription{
			Origin: l.main.name, Group: l.main.name, Policy: l.policy, Scheduler: fwd, DeadLetters: fwd,
			Sink: c.cfg.Sink, Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, MaxInFlight: c.cfg.MaxInFlight, StrangersWrite: len(c.cfg.StateKeys) == 0,
		},
	}
	r.sub.Shrink(c.cfg.MinInFlight, c.cfg.MaxInFlight+c.cfg.MaxRetriesInFlight)
	return r
}

// run reads until ctx ends, then closes the channel.
func (r *reader) run(ctx context.Context) {
	if r.out != nil {
		defer close(r.out)
	}
	defer r.sub.Watched()()
	var all sync.WaitGroup
	all.Go(func() { newLane(r, mainQueue, r.layout.main).run(ctx) })
	all.Go(func() { newLane(r, suspectQueue, r.layout.suspects).run(ctx) })
	all.Wait()
}

// disconnected tells once that the queue cannot be read; consuming tells when it
// can be again.
func (r *reader) disconnected(queue string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // behind the telling: what is told last is what is
	was := r.lost
	r.lost, r.up = true, false
	if !was {
		r.tell(redeliver.ChangeDisconnected, "reading "+queue+"; trying again with backoff", err)
	}
}

func (r *reader) consuming() {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.up
	r.lost, r.up = false, true
	if !was {
		r.tell(redeliver.ChangeConsuming, "", nil)
	}
}

func (r *reader) tell(change redeliver.Change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.layout.main.name, Group: r.layout.main.name, Change: change, Detail: detail, Err: err})
}
