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
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commands"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/adapters/kafka/internal/sweep"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// Subscriber delivers the messages of topics to the client's group. It is a Watermill subscriber and safe for
// concurrent use.
type Subscriber struct {
	client  *Client
	readers *engine.Readers
}

// Subscribe joins the group for a topic and its delay topics, after it has created or checked them,
// and delivers messages until ctx ends or the subscriber is closed. Every call is a member of its
// own.
//
// Up to Config.MaxInFlight first deliveries run at once, those of one key one after another. Later
// messages of the key overtake a failed one, unless Policy.Order says otherwise. A message is done
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
			defer s.client.releaseStatic(topic)
			r.run(ctx, engine.Options[*sarama.ConsumerMessage]{Out: out})
		}, nil
	})
	return out, err
}

// reader makes a member of the group that reads a topic and its delay topics. It creates or checks the topics first.
// The reader has the values of ctx, but does not end with it.
func (c *Client) reader(ctx context.Context, topic string) (*reader, error) {
	l, err := c.readyLayout(topic)
	if err != nil {
		return nil, err
	}
	if err := c.claimStatic(topic); err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, c.cfg.consumerConfig(topic))
	if err != nil {
		c.releaseStatic(topic)
		return nil, fmt.Errorf("kafka: connecting to %v as group %s: %w", c.cfg.Brokers, c.cfg.Group, err)
	}
	return newReader(context.WithoutCancel(ctx), c, l, group), nil
}

// claimStatic refuses a second static member that reads the same topic. Both would have the same group.instance.id, so
// the group would fence one of them for good.
func (c *Client) claimStatic(topic string) error {
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

func (c *Client) releaseStatic(topic string) {
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

// reader is one Subscribe: a member of the group that reads the origin and its delay topics.
type reader struct {
	client         *Client
	layout         *topology.Layout
	group          sarama.ConsumerGroup
	sub            *engine.Subscription
	store          *store
	engine         *engine.Engine[*sarama.ConsumerMessage]
	values         context.Context          // the Subscribe context's values, without its end
	levels         map[string]time.Duration // of the session's topics on which messages wait; 0 for the retry topic
	topicIDs       cluster.TopicIDs         // of the session's topics
	keeper         *topology.Keeper
	sweeper        *sweep.Sweeper
	commands       *commands.Follower
	metas          claimMetas
	uncounted      atomic.Bool // reportUncounted has reported
	reported       reportTimes
	jitter         time.Duration // the largest jitter that the policy's backoff adds to a delay
	commitInterval time.Duration
	bytesAhead     atomic.Int64 // key, value and header bytes that the lanes have read ahead
}

func newReader(values context.Context, c *Client, l *topology.Layout, group sarama.ConsumerGroup) *reader {
	cfg := &c.cfg
	r := &reader{
		client: c, layout: l, group: group, values: values,
		sub: &engine.Subscription{
			Origin: l.Origin, Group: l.Group, Policy: l.Policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout,
			NackDelay: cfg.NackDelay, MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight,
			Blocking: l.Policy.Order == redeliver.Blocking, Discards: l.Discards, Turn: c.turn,
		},
	}
	r.keeper = topology.NewKeeper(c.topics, l, r.sub, r.reportOften)
	r.store = &store{producer: c.producer, layout: l, spring: cfg.SpringHeaders, onError: recheckAfter(r.keeper), requestRungs: r.keeper.RequestRungs}
	r.sweeper = sweep.New(c.admin, l.Group)
	r.commands = commands.NewFollower(r.sub, c.admin, l.Control.Name, l.Control.Exists)
	_, r.jitter, _ = l.Policy.Delays()
	r.commitInterval = c.cfg.clientConfig().Consumer.Offsets.AutoCommit.Interval
	return r
}

func (r *reader) codec() record.Codec {
	return record.Codec{Origin: r.layout.Origin, Group: r.layout.Group, Unmarshaler: r.client.cfg.Marshaler}
}

// newCommitter returns the committer of a session. saramaCommits reports whether sarama commits marked offsets.
func (r *reader) newCommitter(saramaCommits bool) *settle.Committer {
	return settle.NewCommitter(func(sess sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
		return r.client.admin.Commit(r.layout.Group, sess, all)
	}, r.commitInterval, saramaCommits)
}

// start makes the engine, which handles messages as opt says.
func (r *reader) start(opt engine.Options[*sarama.ConsumerMessage]) {
	opt.Sub, opt.Codec, opt.Store = r.sub, r.codec(), r.store
	r.engine = engine.New(opt)
}

// run takes part in the group until ctx ends, and then leaves it. It handles messages as opt says. After a failure it
// joins again with backoff.
func (r *reader) run(ctx context.Context, opt engine.Options[*sarama.ConsumerMessage]) {
	r.start(opt)
	defer r.engine.Close()
	defer r.sub.RegisterLoad()()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for err := range r.group.Errors() {
			r.handleGroupError(err)
		}
	}()
	janitor := r.startJanitor()
	defer func() {
		janitor()
		_ = r.group.Close() // run reads its errors from Errors
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
			r.reportDisconnected(err)
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				_, _ = r.keeper.CheckTopics() // nobody can join while a level is missing
			}
		}
		if time.Since(began) > time.Second {
			pause.Reset()
			if err == nil {
				continue // a rebalance
			}
		}
		next := pause.NextBackOff()
		if err == nil { // the group rebalances again and again
			next = min(next, 200*time.Millisecond)
		}
		_ = wait.For(ctx, next) // the loop notices the end of ctx
	}
}

// consume takes part in the group for one session.
func (r *reader) consume(ctx context.Context) error {
	ctx, endSession := context.WithCancel(ctx)
	defer endSession()
	r.keeper.SetEndSession(endSession)
	r.keeper.FindRungs()
	names, levels := r.keeper.Subscription()
	r.levels = levels // no lane runs now
	s := &session{reader: r, commits: r.newCommitter(false)}
	err := r.group.Consume(ctx, names, s)
	// A follower that joins again in an unchanged group keeps its generation, so late commits of the last session are
	// not fenced. They are fenced after the session timeout, because nobody sent heartbeats.
	fenced, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.fencingDelay())
	defer cancel()
	s.commits.Stop(fenced)
	if errors.Is(err, context.Canceled) {
		return nil // the session ended while it joined
	}
	return err
}

// fencingDelay returns how long the group accepts a session after its last heartbeat.
func (r *reader) fencingDelay() time.Duration {
	group := r.client.cfg.Sarama.Consumer.Group
	return group.Session.Timeout + group.Heartbeat.Interval
}

// reportDisconnected reports that the group is lost, and repeats that at intervals. reportJoined reports that it is
// back.
func (r *reader) reportDisconnected(err error) {
	r.reportOften("disconnected", redeliver.ChangeDisconnected, "joining again with backoff", err)
}

func (r *reader) reportJoined(detail string) {
	r.reported.forget("disconnected")
	r.sub.EmitChange(redeliver.ChangeAssigned, detail, nil)
}
