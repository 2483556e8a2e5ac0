package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
)

// Wrapped is the sarama.ConsumerGroupHandler that [Wrap] and [WrapBatch] return. sarama calls its methods, except
// Topics and Close.
type Wrapped struct {
	client   *client
	readers  []*reader.Reader
	closing  context.Context // Wrap's
	closeAll func(context.Context) error

	mu         sync.Mutex
	lastTopics []reader.Topics // by reader: the last result of Topics

	// Set by Setup for the running session.
	ctx        context.Context
	endSession context.CancelFunc
	commits    *settle.Committer
	sessions   []*reader.Session // by reader

	pacer *reader.Pacer
}

// Wrap is [Consume] for a service that keeps running its own consumer group. It returns the handler
// for the service's loop:
//
//	wrapped, err := kafka.Wrap(ctx, client, group, config, []string{"orders"}, charge)
//	...
//	for ctx.Err() == nil {
//		err := group.Consume(ctx, wrapped.Topics(), wrapped) // call Topics each time
//		...
//	}
//	err = wrapped.Close(context.Background())
//
// The group must be made from client, or with its configuration. Wrap checks that configuration,
// because sarama does not show how a group was made. It refuses settings that would lose messages:
// a disabled Offsets.AutoCommit (the handler only marks settled records, so nothing would be
// committed), and Offsets.Initial Newest, sarama's default (messages that were written to a delay
// topic before its first claim would be skipped). A group that has committed offsets is not
// affected by Oldest. It refuses two orders, too: OrderThroughRetries needs a balance strategy of its
// own, and with OrderBlocking sarama's commits could undo those that have the attempts of a failed
// message. All problems of the call and of config are in one redeliver.ConfigError.
//
// Each session begins with a check of the group. The session fails, with the reason, if its member
// does not belong to config.Group, or does not read all that Topics returned. There are three other
// differences from Consume: all topics share one member, config.InstanceID must be empty, and
// group.Consume returns the errors of the group. Retries are as punctual as fetches are short:
// redeliver sets Consumer.MaxWaitTime to 50 ms in its own groups; sarama's default is 500 ms.
//
// At a rebalance, handlers have the rebalance timeout less 10 s to finish, and at most
// Net.ReadTimeout less 10 s (20 s by default): a member that joins waits no longer. If the context
// of group.Consume ends, they have config.DrainTimeout. If that context ends while a rebalance waits
// for handlers, only the end of ctx shortens the wait, so give Wrap the same context.
//
// A session that lasts for less than a second is followed by a pause: from 20 ms up to 1 s, longer
// each time. Without it, the service's loop would make the group rebalance all the time.
func Wrap(ctx context.Context, client sarama.Client, group sarama.ConsumerGroup, config Config, topics []string, handler Handler) (*Wrapped, error) {
	config, ps := config.withClient(client, topics, handler == nil)
	return openWrapped(ctx, config, ps, group, topics, engine.Options[*sarama.ConsumerMessage]{Handle: handler})
}

// WrapBatch is [Wrap] with a handler for many records at once, as [ConsumeBatch] has it. The
// documentation of both applies here too. A partial batch runs when its partition moves.
func WrapBatch(ctx context.Context, client sarama.Client, group sarama.ConsumerGroup, config Config, topics []string, batch redeliver.BatchConfig, handler BatchHandler) (*Wrapped, error) {
	config, ps := config.withClient(client, topics, handler == nil)
	opt := config.batchOptions(&ps, batch, handler)
	return openWrapped(ctx, config, ps, group, topics, opt)
}

// openWrapped is Wrap with a handler in opt. ps has the problems of the call that were found.
func openWrapped(ctx context.Context, config Config, ps check.Problems, group sarama.ConsumerGroup, topics []string, opt engine.Options[*sarama.ConsumerMessage]) (*Wrapped, error) {
	rules.Require(&ps, "group", group != nil)
	if config.InstanceID != "" {
		ps.Add("InstanceID", fmt.Sprintf("%q", config.InstanceID), "must be empty: the group's own configuration says it")
	}
	if config.Sarama != nil {
		if config.Sarama.Consumer.Offsets.Initial != sarama.OffsetOldest {
			ps.Add("Sarama.Consumer.Offsets.Initial", config.Sarama.Consumer.Offsets.Initial,
				"must be OffsetOldest: with OffsetNewest a message that waits on a new delay topic is skipped. A group that has committed offsets continues from these. Set SkipExisting if a new group should skip the messages that the topics have")
		}
		if read, drain := config.Sarama.Net.ReadTimeout, config.withDefaults().DrainTimeout; read <= drain {
			ps.Add("Sarama.Net.ReadTimeout", read, fmt.Sprintf("must be longer than DrainTimeout, %s: a join is answered when the other members have drained, so this member would try again and again", drain))
		}
		own := *config.Sarama // a static member belongs to the service's own group
		own.Consumer.Group.InstanceId = ""
		config.Sarama = &own
	}
	// OrderThroughRetries needs its own balance strategy, which this group does not have.
	config.checkWithClient(&ps, topics, []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone, redeliver.OrderBlocking})
	config.refuseBlocking(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	c, err := openClient(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := c.checkPolicyNames(topics...); err != nil {
		return nil, errors.Join(err, mq.NewClient(c).Close(ctx))
	}
	w := &Wrapped{client: c, closing: ctx, pacer: reader.NewPacer()}
	var errs []error
	for _, topic := range topics {
		l, err := c.readyLayout(topic)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.readers = append(w.readers, c.newReader(ctx, l, group, c.cfg.wrappedDrain(),
			"Raise Sarama.Net.ReadTimeout and Sarama.Consumer.Group.Rebalance.Timeout to 10 s above the time of the handler"))
	}
	if errs != nil {
		return nil, errors.Join(engine.JoinErrors("kafka", errs), mq.NewClient(c).Close(ctx))
	}
	var stops []func()
	for _, r := range w.readers {
		stops = append(stops, r.Start(opt))
	}
	var once sync.Once
	w.closeAll = func(ctx context.Context) (err error) {
		once.Do(func() {
			for _, stop := range stops {
				stop()
			}
			err = mq.NewClient(c).Close(ctx)
		})
		return err
	}
	return w, nil
}

// refuseBlocking refuses OrderBlocking in a group that the service has made.
func (c Config) refuseBlocking(ps *check.Problems) {
	const rule = "is refused here: sarama commits at times of its own, and could undo the commit that has the attempts of a failed message. Consume keeps them"
	for field, p := range c.common().Policies() {
		if p.Order == redeliver.OrderBlocking {
			ps.Add(field+".Order", p.Order, rule)
		}
	}
}

// Topics returns the topics that were passed to Wrap, and redeliver's own topics for them. When a
// level of an older policy appears or disappears, the session ends. Call Topics before each
// group.Consume.
func (w *Wrapped) Topics() (topics []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastTopics = nil
	for _, r := range w.readers {
		read := r.TopicsToRead()
		w.lastTopics = append(w.lastTopics, read)
		topics = append(topics, read.Names...)
	}
	return topics
}

// Close disconnects. Call it after the last group.Consume has returned. The group and the client
// stay open. For ctx, see [mq.Client.Close]. A second Close does nothing.
func (w *Wrapped) Close(ctx context.Context) error { return w.closeAll(ctx) }

// Setup implements [sarama.ConsumerGroupHandler].
func (w *Wrapped) Setup(sess sarama.ConsumerGroupSession) error {
	w.mu.Lock()
	all := w.lastTopics
	w.mu.Unlock()
	if all == nil {
		return errors.New("kafka: Topics was not called; pass its result to group.Consume")
	}
	w.pacer.AwaitTurn()
	if err := w.checkMember(sess.MemberID(), all); err != nil {
		return err
	}
	w.ctx, w.endSession = context.WithCancel(sess.Context())
	w.commits, w.sessions = w.readers[0].NewCommitter(w.readers), nil
	closing := w.closing
	if closing.Err() != nil { // it was only the context of the start
		closing = context.Background()
	}
	for i, r := range w.readers {
		s := r.NewSession(closing, all[i], w.commits, w.endSession)
		w.sessions = append(w.sessions, s)
		if err := s.Setup(sess); err != nil {
			return err
		}
	}
	return nil
}

// checkMember checks that the session's member belongs to the group of the configuration, and reads all topics.
func (w *Wrapped) checkMember(member string, all []reader.Topics) error {
	group := w.client.cfg.Group
	described, err := w.client.admin.DescribeGroup(group)
	if errors.Is(err, cluster.ErrUnseenMembers) {
		return nil // other members use another protocol: the check is a help, and no condition
	}
	if err != nil {
		return err
	}
	m, ok := described.Members[member]
	if !ok {
		return fmt.Errorf("kafka: the consumer group of this session is not %s: it has no member %s; give Wrap the group's own name in Config.Group", group, member)
	}
	metadata, err := m.GetMemberMetadata()
	if err != nil || metadata == nil {
		return nil //nolint:nilerr // the next rebalance has begun: the broker does not answer, and the next session checks again
	}
	var missing []string
	for _, topics := range all {
		for _, topic := range topics.Names {
			if !slices.Contains(metadata.Topics, topic) {
				missing = append(missing, topic)
			}
		}
	}
	if missing != nil {
		return fmt.Errorf("kafka: member %s of group %s does not read %s; pass the result of Topics to group.Consume, and call Topics each time", member, group, strings.Join(missing, ", "))
	}
	return nil
}

// Cleanup implements [sarama.ConsumerGroupHandler].
func (w *Wrapped) Cleanup(sess sarama.ConsumerGroupSession) error {
	if w.endSession != nil { // Setup has not failed
		w.endSession()
		w.commits.Stop()
		for _, s := range w.sessions {
			_ = s.Cleanup(sess) // it returns nil
		}
	}
	return nil
}

// ConsumeClaim implements [sarama.ConsumerGroupHandler].
func (w *Wrapped) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for _, s := range w.sessions {
		if s.Reads(claim.Topic()) {
			return s.ConsumeClaim(boundSession{sess, w.ctx}, claim)
		}
	}
	return fmt.Errorf("kafka: topic %s is unknown; pass the result of Topics to group.Consume", claim.Topic())
}

// boundSession is a session that ends with ctx. When the first of its claims has been drained, sarama ends the whole
// session.
type boundSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

// Context implements [sarama.ConsumerGroupSession].
func (s boundSession) Context() context.Context { return s.ctx }
