package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Subscriber delivers the messages of topics to the client's group; it is a
// Watermill subscriber and safe for concurrent use.
type Subscriber struct {
	client  *Client
	readers *delayqueue.Readers
}

func newSubscriber(c *Client) *Subscriber {
	return &Subscriber{client: c, readers: delayqueue.NewReaders(errors.New("kafka: the subscriber is closed"))}
}

// Subscribe joins the group for a topic and its delay topics, which it creates
// or checks before, and delivers messages until ctx ends or the subscriber is
// closed. Every call is a member of its own.
//
// Up to Config.MaxInFlight messages are on their way at once, those of one key
// one after another; a failed message is overtaken by later ones of its key, unless
// the Order of its policy is PerKey. A message is done when it is acked. One that is
// nacked has failed an attempt: the policy decides, as for an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r, err := s.client.reader(ctx, topic)
		if err != nil {
			return nil, err
		}
		out = make(chan *message.Message, min(outAhead, s.client.cfg.MaxInFlight))
		r.out = out
		return r.run, nil
	})
	return out, err
}

// reader makes a member of the group that reads a topic and its delay topics,
// which it creates or checks before. It has ctx's values, not its end.
func (c *Client) reader(ctx context.Context, topic string) (*reader, error) {
	l, err := c.ready(topic)
	if err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, c.cfg.consumerConfig(topic))
	if err != nil {
		return nil, fmt.Errorf("kafka: connecting to %v as group %s: %w", c.cfg.Brokers, c.cfg.Group, err)
	}
	return newReader(context.WithoutCancel(ctx), c, l, group), nil
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

// reader is one Subscribe: a member of the group that reads the origin and its
// delay topics.
type reader struct {
	client   *Client
	layout   *layout
	group    sarama.ConsumerGroup
	sub      *delayqueue.Subscription
	fwd      *forwarder
	out      chan *message.Message // nil with native
	native   *native               // nil with out
	values   context.Context       // the Subscribe context's values, never its end
	levels   map[string]waitLevel  // of the session
	lives    lives                 // of the topics of the session
	old      oldLevels
	owned    owned
	control  *control
	notes    notes
	told     told
	restored restored
	jitter   time.Duration // the most that the policy's backoff adds to a delay
	wait     time.Duration // how long a fetch may wait for records
	commits  time.Duration // so often is committed what is settled
	ended    time.Time     // the last session

	// slots bound what is in flight: first deliveries and retries have their own.
	first, retries chan struct{}
	weight         atomic.Int64 // bytes that the lanes have read ahead
	handed         atomic.Int64 // messages that lie in out, or that a consumer has taken and not answered
}

// waitLevel is what a topic on which messages wait stands for.
type waitLevel struct {
	level time.Duration // 0 for the retry topic
}

func newReader(values context.Context, c *Client, l *layout, group sarama.ConsumerGroup) *reader {
	fwd := &forwarder{producer: c.producer, layout: l, dialect: c.cfg.DeadLetterHeaders}
	r := &reader{
		client: c, layout: l, group: group, fwd: fwd, values: values,
		first:   make(chan struct{}, c.cfg.MaxInFlight),
		retries: make(chan struct{}, c.cfg.MaxRetriesInFlight),
		sub: &delayqueue.Subscription{
			Origin: l.origin, Group: l.group, Policy: l.policy, Scheduler: fwd, DeadLetters: fwd,
			Sink: c.cfg.Sink, Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, MaxInFlight: c.cfg.MaxInFlight,
			Blocking: l.policy.Order == redeliver.Blocking,
		},
	}
	r.sub.Shrink(c.cfg.MinInFlight, c.cfg.MaxInFlight+c.cfg.MaxRetriesInFlight)
	fwd.unknown = func() { r.old.rebalanced.Store(true) }
	r.control = newControl(r)
	_, r.jitter, _ = l.policy.Delays()
	consumer := c.cfg.consumerConfig(l.origin).Consumer
	r.wait, r.commits = consumer.MaxWaitTime, consumer.Offsets.AutoCommit.Interval
	for _, t := range l.topics {
		if t.old && (!r.perKey() || t.partitions == l.partitions) {
			r.old.now = append(r.old.now, t.level)
		}
	}
	return r
}

// run takes part in the group until ctx ends, then leaves it and closes the
// channel. Between failures it pauses with backoff.
func (r *reader) run(ctx context.Context) {
	if r.out != nil {
		defer close(r.out)
	}
	defer r.sub.Watched()()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for err := range r.group.Errors() {
			r.heard(err)
		}
	}()
	janitor := r.startJanitor()
	defer func() {
		janitor()
		_ = r.group.Close() // its errors were read from Errors
		<-drained
	}()
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		r.between(ctx)
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		err := r.consume(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.disconnected(err)
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				_, _ = r.look() // a level was deleted: with it nobody can join
			}
		}
		if time.Since(began) > time.Second {
			pause.Reset()
			if err == nil {
				continue // a rebalance
			}
		}
		wait := pause.NextBackOff()
		if err == nil { // one rebalance after another: members come and go
			wait = min(wait, 200*time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// between returns when nothing can be committed any more for the session that has ended.
// Only then may the next one read its offsets: a follower that joins again while the group
// is as it was keeps its generation, which fences nothing of the last session. What takes
// longer than a session is fenced: nobody has sent heartbeats meanwhile.
func (r *reader) between(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, r.ended.Add(r.fencedAfter()))
	defer cancel()
	r.notes.between(ctx)
}

// fencedAfter is how long after a session's last heartbeat the group has another generation.
func (r *reader) fencedAfter() time.Duration {
	group := r.client.cfg.Sarama.Consumer.Group
	return group.Session.Timeout + group.Heartbeat.Interval
}

// disconnected tells that the group is lost, and again after a while; joined tells that it
// is back.
func (r *reader) disconnected(err error) {
	r.tellAgain("disconnected", redeliver.ChangeDisconnected, "joining again with backoff", err)
}

func (r *reader) joined(detail string) {
	r.told.forget("disconnected")
	r.tell(redeliver.ChangeAssigned, detail, nil)
}

func (r *reader) tell(change redeliver.Change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.layout.origin, Group: r.layout.group, Change: change, Detail: detail, Err: err})
}
