// Package reader reads an origin and the topics on which its messages wait, as one member of a consumer group.
//
// A [Reader] joins the group, and joins it again after each rebalance. While it is a member, a [Session] has its
// partitions of the origin and of the levels. Each partition is a source, which a lane of the engine calls. The lanes
// of a session share a committer, and the lanes of a reader share the engine's slots.
//
// The files in the order of a record's life:
//
//	reader.go, session.go, newest.go        the reader joins, and chooses topics and offsets
//	claimmeta.go, believe.go, keyqueues.go  a partition is claimed with the state that its last owner left
//	source.go, arrive.go                    a record arrives, or was settled before
//	gate.go                                 may it begin now?
//	  internal/perkey                         its key (OrderThroughRetries)
//	  internal/commands                       commands
//	  internal/crash                          did it crash the last owner?
//	internal/record/codec.go                the handler and the policy see it
//	store.go, internal/produce              its copy is written
//	internal/settle                         it is settled, and that is committed with internal/commitmeta
//	janitor.go                              it is deleted from a level; other regular work
package reader

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commands"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/adapters/kafka/internal/sweep"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// Config is what a client gives its reader.
type Config struct {
	Layout         *topology.Layout
	Sub            *engine.Subscription
	Group          sarama.ConsumerGroup
	Provisioner    *topology.Provisioner
	Producer       *produce.Producer
	Owner          string        // the client's name in commit metadata
	SkipsExisting  bool          // a new group reads only records of the origin that are written after its start
	SpringHeaders  bool          // dead letters have Spring's headers, too
	MaxWaiting     int           // messages that may wait at a time with OrderThroughRetries
	DrainTimeout   time.Duration // of a lane, when the reader ends or has lost its session
	RebalanceDrain time.Duration // the same at a rebalance
	CutAdvice      string        // what to set if RebalanceDrain is too short
	CommitInterval time.Duration
	FencedAfter    time.Duration // how long the group accepts a session after its last heartbeat
	SweepInterval  time.Duration // how often settled records of our topics are deleted
}

// Reader is one Subscribe: a member of the group that reads the origin and its delay topics.
type Reader struct {
	Config

	store        *store
	engine       *engine.Engine[*sarama.ConsumerMessage]
	values       context.Context // the Subscribe context's values, without its end
	keeper       *topology.Keeper
	sweeper      *sweep.Sweeper
	commands     *commands.Follower
	reported     reportTimes
	operations   engine.Operations                // what the broker refuses
	commits      atomic.Pointer[settle.Committer] // of the last session
	probeSoon    chan struct{}                    // holds a value when the janitor should probe
	probesAlways bool                             // the service gets the errors of the group
	jitter       time.Duration                    // the largest jitter that the policy's backoff adds to a delay
	topicIDs     sessionIDs
	hasBegun     atomic.Bool  // the group need not skip existing records any more
	bytesAhead   atomic.Int64 // key, value and header bytes that the lanes have read ahead

	reportedUncounted atomic.Bool
	metadataLimit     settle.Limit

	// Used only at the end of a session.
	abandoned int64 // attempts that have ended early
	cuts      int   // sessions in a row that have cut attempts
}

// New returns a reader. It has the values of ctx, but does not end with ctx.
func New(ctx context.Context, cfg Config) *Reader {
	r := &Reader{Config: cfg, values: context.WithoutCancel(ctx), probeSoon: make(chan struct{}, 1)}
	l := cfg.Layout
	r.Sub.Operations = &r.operations
	admin := cfg.Provisioner.Admin.Observed(&r.operations)
	r.Provisioner = &topology.Provisioner{Admin: admin, Config: cfg.Provisioner.Config}
	r.keeper = topology.NewKeeper(r.Provisioner, l, cfg.Sub, r.reportAtIntervals)
	r.store = &store{producer: cfg.Producer, layout: l, spring: cfg.SpringHeaders, onError: recheckAfter(r.keeper), requestRungs: r.keeper.RequestRungs}
	r.sweeper = sweep.New(admin, l.Group)
	r.commands = commands.NewFollower(cfg.Sub, admin.Unobserved(), l.Control.Name, l.Control.Exists) // it reports its own errors
	_, r.jitter, _ = l.Policy.Delays()
	return r
}

func (r *Reader) admin() cluster.Admin { return r.Provisioner.Admin }

func (r *Reader) codec() record.Codec {
	return record.Codec{Origin: r.Layout.Origin, Group: r.Layout.Group}
}

func (r *Reader) isPerKey() bool { return r.Layout.Policy.Order == redeliver.OrderThroughRetries }

// Close closes the group of a reader that does not run.
func (r *Reader) Close() { _ = r.Group.Close() } // it has not joined

// Start starts the work of a reader beside its sessions, in a group that the service runs itself. Messages are handled
// as opt says. Call stop after the last session.
func (r *Reader) Start(opt engine.Options[*sarama.ConsumerMessage]) (stop func()) {
	r.startEngine(opt)
	r.probesAlways = true
	stopJanitor, endLoad := r.startJanitor(), r.Sub.RegisterLoad()
	return func() {
		stopJanitor()
		endLoad()
		r.engine.Close()
	}
}

func (r *Reader) startEngine(opt engine.Options[*sarama.ConsumerMessage]) {
	opt.Sub, opt.Codec, opt.Store = r.Sub, r.codec(), r.store
	r.engine = engine.New(opt)
}

// Run takes part in the group until ctx ends, and then leaves it. It handles messages as opt says. After a failure it
// joins again with backoff.
func (r *Reader) Run(ctx context.Context, opt engine.Options[*sarama.ConsumerMessage]) {
	r.startEngine(opt)
	defer r.engine.Close()
	defer r.Sub.RegisterLoad()()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for err := range r.Group.Errors() {
			r.handleGroupError(err)
		}
	}()
	stopJanitor := r.startJanitor()
	defer func() {
		stopJanitor()
		_ = r.Group.Close() // Run reads its errors from Errors
		<-drained
	}()
	pause := newSessionBackOff()
	for ctx.Err() == nil {
		began := time.Now()
		err := r.consume(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.reportDisconnected(r.probeAfter(err))
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				r.CheckTopics() // nobody can join while a level is missing
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

func newSessionBackOff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
}

// Pacer separates sessions that end as soon as they begin, for a loop that joins again at once.
type Pacer struct {
	pause *backoff.ExponentialBackOff
	began time.Time // when the last session began
}

// NewPacer returns a Pacer for one group.
func NewPacer() *Pacer { return &Pacer{pause: newSessionBackOff()} }

// AwaitTurn waits at the beginning of a session if the one before has lasted for less than a second. A session that has ended
// already is no reason to wait for less. So the end of a loop may wait, too, for at most a second.
func (p *Pacer) AwaitTurn() {
	if time.Since(p.began) > time.Second {
		p.pause.Reset()
	} else {
		time.Sleep(min(p.pause.NextBackOff(), time.Second)) //nolint:forbidigo // it is a pause
	}
	p.began = time.Now()
}

// consume takes part in the group for one session.
func (r *Reader) consume(ctx context.Context) error {
	session, end := context.WithCancelCause(ctx)
	defer end(nil)
	topics, commits := r.TopicsToRead(), r.NewCommitter(nil)
	err := r.Group.Consume(session, topics.Names, r.NewSession(ctx, topics, commits, func() { end(errTopicsChanged) }))
	commits.Stop()
	if errors.Is(err, context.Canceled) {
		return nil // the session ended while it joined
	}
	return err
}

// errTopicsChanged is the cause of the end of a session that reads other topics than the next one. sarama tells the group.
var errTopicsChanged = errors.New("the topics that the member reads have changed")

// CheckTopics looks for levels that appeared or disappeared, and for missing topics.
func (r *Reader) CheckTopics() { _, _ = r.keeper.CheckTopics() }

// Topics has the topics that a reader reads in one session.
type Topics struct {
	Names  []string
	levels map[string]time.Duration // of the topics on which messages wait; 0 for the retry topic
}

// TopicsToRead returns the topics that a session should read now.
func (r *Reader) TopicsToRead() Topics {
	r.keeper.FindRungs()
	names, levels := r.keeper.Subscription()
	return Topics{names, levels}
}

// NewCommitter returns the committer of a session of the reader's group. If sarama commits the offsets that are marked,
// shared has the readers of the session.
func (r *Reader) NewCommitter(shared []*Reader) *settle.Committer {
	readers := shared
	if readers == nil {
		readers = []*Reader{r}
	}
	c := settle.NewCommitter(settle.CommitterConfig{
		Commit: func(sess sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
			errs := r.admin().Commit(r.Layout.Group, sess, all)
			for _, one := range readers {
				one.recordCommits(all, errs)
			}
			return errs
		},
		Interval: r.CommitInterval, FencedAfter: r.FencedAfter, SaramaCommits: shared != nil, Limit: &r.metadataLimit,
	})
	for _, one := range readers {
		one.commits.Store(c)
	}
	return c
}

// recordCommits records the results of commits of the reader's own topics.
func (r *Reader) recordCommits(all []cluster.OffsetCommit, errs []error) {
	_, levels := r.keeper.Subscription()
	var own []cluster.OffsetCommit
	var results []error
	for i, c := range all {
		if _, waits := levels[c.Topic]; waits || c.Topic == r.Layout.Origin {
			own, results = append(own, c), append(results, errs[i])
		}
	}
	r.admin().RecordCommits(r.Layout.Group, own, results)
}
