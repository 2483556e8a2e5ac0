package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscriber delivers the messages of topics to the client's group; it is a
// Watermill subscriber and safe for concurrent use.
type Subscriber struct {
	client  *Client
	readers *engine.Readers
}

// Subscribe joins the group for a topic and its delay topics, after it has created or checked them,
// and delivers messages until ctx ends or the subscriber is closed. Every call is a member of its
// own.
//
// Up to Config.MaxInFlight messages run at once, those of one key one after another. Later messages
// of its key overtake a failed message, unless the Order of its policy is PerKey. A message is done
// when it is acked. A nacked message has failed an attempt, and the policy decides as after an
// error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var out chan *message.Message
	err := s.readers.Begin(ctx, func(ctx context.Context) (func(context.Context), error) {
		r, err := s.client.reader(ctx, topic)
		if err != nil {
			return nil, err
		}
		out = make(chan *message.Message)
		return func(ctx context.Context) {
			defer s.client.unclaim(topic)
			r.run(ctx, engine.Options[*sarama.ConsumerMessage]{Out: out})
		}, nil
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
	if err := c.claim(topic); err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, c.cfg.consumerConfig(topic))
	if err != nil {
		c.unclaim(topic)
		return nil, fmt.Errorf("kafka: connecting to %v as group %s: %w", c.cfg.Brokers, c.cfg.Group, err)
	}
	return newReader(context.WithoutCancel(ctx), c, l, group), nil
}

// claim refuses a second member that is static and reads a topic: both would have one group.instance.id, and the group would
// fence one of them for good.
func (c *Client) claim(topic string) error {
	if c.cfg.InstanceID == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.static[topic] {
		return fmt.Errorf("kafka: topic %s is subscribed to already: a client with an InstanceID reads each topic once; raise MaxInFlight instead", topic)
	}
	c.static[topic] = true
	return nil
}

func (c *Client) unclaim(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.static, topic)
}

// Close ends all subscriptions and returns when their channels are closed. It waits for messages in
// flight, up to Config.DrainTimeout. After that their contexts are cancelled, and they stay
// unacked.
func (s *Subscriber) Close() error {
	s.readers.Close()
	return nil
}

// reader is one Subscribe: a member of the group that reads the origin and its
// delay topics.
type reader struct {
	client   *Client
	layout   *layout
	group    sarama.ConsumerGroup
	sub      *engine.Subscription
	store    *store
	engine   *engine.Engine[*sarama.ConsumerMessage]
	values   context.Context      // the Subscribe context's values, never its end
	levels   map[string]waitLevel // of the session
	lives    lives                // of the topics of the session
	extra    extraLevels
	rungs    rungs
	owned    owned
	control  *control
	notes    notes
	told     told
	restored restored
	jitter   time.Duration // the most that the policy's backoff adds to a delay
	commits  time.Duration // so often is committed what is settled
	bytes    atomic.Int64  // that the lanes have read ahead
}

// waitLevel is what a topic on which messages wait stands for.
type waitLevel struct {
	level time.Duration // 0 for the retry topic
}

func newReader(values context.Context, c *Client, l *layout, group sarama.ConsumerGroup) *reader {
	cfg := &c.cfg
	r := &reader{
		client: c, layout: l, group: group, values: values,
		sub: &engine.Subscription{
			Origin: l.origin, Group: l.group, Policy: l.policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout,
			NackDelay: cfg.NackDelay, MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight,
			Blocking: l.policy.Order == redeliver.Blocking, Discards: l.discards, Turn: c.turn,
		},
	}
	r.rungs.bell = make(chan struct{}, 1)
	r.store = &store{producer: c.producer, layout: l, spring: cfg.SpringHeaders, doubt: func() { r.extra.suspect.Store(true) }, wantRungs: r.rungs.want}
	r.control = newControl(r)
	_, r.jitter, _ = l.policy.Delays()
	r.commits = c.cfg.consumerConfig(l.origin).Consumer.Offsets.AutoCommit.Interval
	for _, t := range l.topics {
		if (t.old || t.rung && t.exists) && (!r.perKey() || t.partitions == l.partitions) {
			r.extra.now = append(r.extra.now, t.level)
		}
		if t.unfit {
			r.extra.unfit = append(r.extra.unfit, t.level)
		}
	}
	slices.Sort(r.extra.now)
	return r
}

func (r *reader) codec() codec {
	return codec{r.layout.origin, r.layout.group, r.client.cfg.Marshaler}
}

// start makes the engine. opt says who handles the messages.
func (r *reader) start(opt engine.Options[*sarama.ConsumerMessage]) {
	opt.Sub, opt.Codec, opt.Store = r.sub, r.codec(), r.store
	r.engine = engine.New(opt)
}

// run takes part in the group until ctx ends, then leaves it. opt says who handles the
// messages. Between failures it pauses with backoff.
func (r *reader) run(ctx context.Context, opt engine.Options[*sarama.ConsumerMessage]) {
	r.start(opt)
	defer r.engine.Close()
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
	r.sub.Emit(redeliver.SubscriptionChanged{Origin: r.layout.origin, Group: r.layout.group, Change: change, Detail: detail, Err: err})
}
