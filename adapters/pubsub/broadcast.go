package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// BroadcastConfig says how a service reads topics of a Watermill Pub/Sub without a
// group. Subscriber is required.
type BroadcastConfig struct {
	// Subscriber reads the topics, as the caller made it: every Subscribe of it gets
	// every message (a Redis subscriber without ConsumerGroup, a Kafka one without
	// one, NewDurablePubSubConfig with a random suffix on RabbitMQ). One that has a
	// group works, too: then one of the group gets the message, and its failure is
	// reported and not retried. It stays the caller's, to be closed after the
	// consumer. Required.
	Subscriber message.Subscriber
	// Policy is for every topic. What it says of attempts holds: Timeout, Immediate,
	// Invalid, Classify, ErrorText. There are no other retries: MaxRetries, Backoff
	// and Levels must be left alone.
	Policy redeliver.Policy
	// DrainTimeout bounds how long handlers may finish when the consumer closes;
	// then their contexts are cancelled. Default 10 s.
	DrainTimeout time.Duration
	// Decode is asked about each message before its handler, and may change it; an
	// error, or a panic, is a failure: undecodable. Default: all messages are fine.
	Decode func(*message.Message) error
	// Sink is told what happens. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer redeliver.Tracer
}

func (c BroadcastConfig) withDefaults() BroadcastConfig {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	return c
}

// Broadcast is a Watermill subscriber over one without a group: every process gets
// every message (RocketMQ's BROADCASTING). It is safe for concurrent use.
//
// A message that fails (its handler returns an error, panics, or outlives the
// policy's Timeout) is told of, as redeliver.BroadcastFailed, after the policy's
// Immediate tries, and acked: it does not come back, and the next goes on. A
// Watermill subscriber delivers one message at a time, so one handler runs at once
// for each Subscribe, and where one hangs all wait for its Timeout. A message's context
// has the values of the context of Subscribe, and those that the subscriber has put
// into the message's own; it ends with the attempt.
//
// middleware.Retry is refused around it, see middleware.AllowBroadcast, and so is
// middleware.Receiver.
type Broadcast struct {
	cfg     BroadcastConfig
	policy  redeliver.Policy
	readers *delayqueue.Readers
}

var _ message.Subscriber = (*Broadcast)(nil)

// OpenBroadcast checks the configuration. All problems of it are in one
// redeliver.ConfigError. The subscriber is not asked for anything yet.
func OpenBroadcast(cfg BroadcastConfig) (*Broadcast, error) {
	cfg = cfg.withDefaults()
	var ps redeliver.Problems
	if cfg.Subscriber == nil {
		ps.Add("Subscriber", "nil", "is required")
	}
	b := &Broadcast{cfg: cfg, readers: delayqueue.NewReaders(errors.New("pubsub: the broadcast consumer is closed")), policy: delayqueue.BroadcastPolicy(&ps, "Policy", cfg.Policy)}
	ps.Duration("DrainTimeout", cfg.DrainTimeout, time.Nanosecond, 0)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return b, nil
}

// Subscribe delivers the messages of a topic until ctx ends or the consumer is
// closed. Each call makes one Subscribe of the user's subscriber, and where that ends
// by itself, another.
//
// A message is done when it is acked; one that is nacked has failed.
func (b *Broadcast) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := b.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r := &broadcastReader{b: b, topic: topic, sub: &delayqueue.Subscription{
			Origin: topic, Policy: b.policy, Sink: b.cfg.Sink, Tracer: b.cfg.Tracer, MaxInFlight: 1,
		}}
		r.air = delayqueue.NewBroadcast(ctx, r.sub)
		if err := r.subscribe(ctx); err != nil {
			return nil, err
		}
		out = r.air.Out
		return func(ctx context.Context) {
			r.tell("consuming", "as a broadcast consumer", nil)
			r.air.Run(ctx, b.cfg.DrainTimeout, r.keep)
			r.leave() // not before: what is in hand is acked within it
		}, nil
	})
	return out, err
}

// Close ends all subscriptions and waits until their handlers are done or the drain
// timeout is over. The user's subscriber is to be closed after it.
func (b *Broadcast) Close() error {
	b.readers.Close()
	return nil
}

// broadcastReader is one Subscribe of a Broadcast.
type broadcastReader struct {
	b     *Broadcast
	topic string
	sub   *delayqueue.Subscription
	air   *delayqueue.Broadcast

	in     <-chan *message.Message
	cancel context.CancelFunc
}

// subscribe begins to read. The end of ctx does not end it: leave does.
func (r *broadcastReader) subscribe(ctx context.Context) error {
	in, cancel, err := subscribe(ctx, ctx, r.b.cfg.Subscriber, r.topic)
	if err == nil {
		r.in, r.cancel = in, cancel
	}
	return err
}

// leave ends the Subscribe. What the subscriber still has is given back.
func (r *broadcastReader) leave() {
	r.cancel()
	go giveBack(r.in)
}

// keep reads until ctx ends, and subscribes again where the channel is closed.
func (r *broadcastReader) keep(ctx context.Context) {
	pause := backoff.NewExponentialBackOff(backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(0))
	for {
		began := time.Now()
		r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestPause {
			pause.Reset()
		}
		r.leave()
		r.tell("disconnected", "subscribing again with backoff", errEnded)
		for err := errEnded; err != nil; {
			timer := time.NewTimer(pause.NextBackOff())
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err = r.subscribe(ctx)
		}
		r.tell("consuming", "", nil)
	}
}

func (r *broadcastReader) read(ctx context.Context) {
	for {
		select {
		case raw, ok := <-r.in:
			if !ok {
				return
			}
			if !r.take(ctx, raw) {
				raw.Nack()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// take hands on a message, and acks it when it was handled or has failed. It is false
// when ctx has ended before.
func (r *broadcastReader) take(ctx context.Context, raw *message.Message) bool {
	rec, _ := newRecord(raw, false, r.b.cfg.Decode)
	if found := rec.strangers(); found != nil {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: r.topic, ID: rec.id(), Findings: found})
	}
	return r.air.Deliver(ctx, &delayqueue.Aired{Values: raw.Context(), Record: rec, ID: rec.id(), Done: func(settled bool) {
		if settled {
			raw.Ack()
		} else {
			raw.Nack()
		}
	}})
}

func (r *broadcastReader) tell(change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.topic, Change: change, Detail: detail, Err: err})
}
