package redelivertest

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// BroadcastConfig says how a service reads topics without a group. Its fields mean what
// they mean in the adapters of real brokers. The zero BroadcastConfig is complete.
type BroadcastConfig struct {
	// Policy is for every topic. What it says of attempts holds: Timeout, Immediate,
	// Invalid, Classify, ErrorText, and of Order KeyOrder (the default) and Unordered.
	// There are no other retries: MaxRetries, Backoff and Levels must be left alone.
	Policy redeliver.Policy
	// MaxInFlight bounds how many messages of one Subscribe run at once. Default 100.
	MaxInFlight int
	// DrainTimeout bounds how long handlers may finish when the consumer closes.
	// Default 10 s.
	DrainTimeout time.Duration
	// Decode is asked about each message before its handler, and may change it; an
	// error, or a panic, is a failure: undecodable. It must be safe for concurrent use.
	// Default: all messages are fine.
	Decode func(*message.Message) error
	// Sink is told what happens. Default: nobody is.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer redeliver.Tracer
}

// Broadcast is a Watermill subscriber without a group: each Subscribe of it gets every
// message that is published from then on, as with kafka.OpenBroadcast. One that fails is
// told of, as redeliver.BroadcastFailed, and the next goes on. It is safe for concurrent
// use.
//
// middleware.Retry is refused around it, see middleware.AllowBroadcast.
type Broadcast struct {
	b       *Broker
	cfg     BroadcastConfig
	policy  redeliver.Policy
	readers *delayqueue.Readers
}

var _ message.Subscriber = (*Broadcast)(nil)

// OpenBroadcast opens a broadcast consumer. It fails the test when the configuration
// cannot work, with all problems at once. The end of the test closes it.
func (b *Broker) OpenBroadcast(cfg BroadcastConfig) *Broadcast {
	b.tb.Helper()
	c, err := b.openBroadcast(cfg)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { _ = c.Close() }) // it has no error
	return c
}

func (b *Broker) openBroadcast(cfg BroadcastConfig) (*Broadcast, error) {
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = DefaultDrainTimeout
	}
	var ps redeliver.Problems
	policy := delayqueue.BroadcastPolicy(&ps, "Policy", cfg.Policy)
	ps.Count("MaxInFlight", cfg.MaxInFlight, 1, 0)
	ps.Duration("DrainTimeout", cfg.DrainTimeout, time.Nanosecond, 0)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("redelivertest: %w", err)
	}
	return &Broadcast{b: b, cfg: cfg, policy: policy, readers: delayqueue.NewReaders(errors.New("redelivertest: the broadcast consumer is closed"))}, nil
}

// Subscribe delivers what is published to a topic, which need not exist, until ctx ends or
// the consumer is closed. A message is done when it is acked; one that is nacked has failed.
func (c *Broadcast) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := c.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		e := &ear{c: c, topic: topic, sub: &delayqueue.Subscription{
			Origin: topic, Policy: c.policy, Sink: c.cfg.Sink, Tracer: c.cfg.Tracer, MaxInFlight: c.cfg.MaxInFlight,
		}}
		e.air = delayqueue.NewBroadcast(ctx, e.sub)
		out = e.air.Out
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		e.next = len(c.b.topics[topic])
		c.b.ears = append(c.b.ears, e)
		return e.run, nil
	})
	return out, err
}

// Close ends all subscriptions and waits until their handlers are done or the drain
// timeout is over.
func (c *Broadcast) Close() error {
	c.readers.Close()
	return nil
}

// ear is one Subscribe of a Broadcast.
type ear struct {
	c     *Broadcast
	topic string
	sub   *delayqueue.Subscription
	air   *delayqueue.Broadcast

	// The broker's mu guards these.
	next   int // the offset that is read next
	inHand int
}

var keySeed = maphash.MakeSeed()

func (e *ear) run(ctx context.Context) {
	b := e.c.b
	e.air.Run(ctx, e.c.cfg.DrainTimeout, func(ctx context.Context) {
		for {
			b.mu.Lock()
			rec, offset, changed := e.take(), e.next-1, b.changed
			b.mu.Unlock()
			if rec != nil {
				if !e.deliver(ctx, rec, offset) {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ears = slices.DeleteFunc(b.ears, func(other *ear) bool { return other == e })
	b.change()
}

// take takes the next record, if there is one. The caller holds the broker's mu.
func (e *ear) take() *stored {
	all := e.c.b.topics[e.topic]
	if e.next == len(all) || all[e.next].after != nil && !all[e.next].after.over {
		return nil
	}
	rec := all[e.next]
	e.next++
	e.inHand++
	return &rec
}

func (e *ear) deliver(ctx context.Context, rec *stored, offset int) bool {
	id := rec.idOf(e.topic, int64(offset))
	if found := rec.strangers(); found != nil {
		e.sub.Tell(redeliver.HeadersIgnored{Topic: e.topic, ID: id, Findings: found})
	}
	return e.air.Deliver(ctx, &delayqueue.Aired{
		Record: &delivered{record: rec.record, id: id, decode: e.c.cfg.Decode}, ID: id,
		Source: redeliver.Source{Known: true, Offset: int64(offset), Timestamp: rec.at},
		Key:    maphash.Bytes(keySeed, rec.key), Keyed: rec.key != nil,
		Done: func(bool) {
			b := e.c.b
			b.mu.Lock()
			defer b.mu.Unlock()
			e.inHand--
			b.change()
		},
	})
}
