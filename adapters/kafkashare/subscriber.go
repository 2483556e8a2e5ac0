package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// Subscribe implements [mq.Broker].
func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	if err := c.checkPolicyNames(ctx, topic); err != nil {
		return nil, nil, err
	}
	r, err := c.openReader(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	router := binding.New(toWatermill(c.cfg.Marshaler))
	return router.Messages(), func(ctx context.Context) { r.run(ctx, engine.Options[*kgo.Record]{Handler: router}) }, nil
}

// Initialize implements [mq.Broker].
func (c *client) Initialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_, err := c.prepareLayout(ctx, topic)
	return err
}

// reader is one Subscribe: Config.Clients members of the share group, and one member of the consumer group.
type reader struct {
	client *client
	layout *layout
	sub    *engine.Subscription
	engine *engine.Engine[*kgo.Record]
	level  atomic.Pointer[levelMember] // the last member of the consumer group
	values context.Context             // the values of Subscribe's context, without its end

	operations engine.Operations // what the broker refuses

	mu             sync.Mutex
	downMembers    int // members that cannot read
	downReported   time.Time
	lastDeliveries int // messages in hand that the broker will not deliver again
	unread         map[partition]unreadReport
}

// checkPolicyNames refuses policies of topics that do not exist and that the client does not read.
func (c *client) checkPolicyNames(ctx context.Context, topics ...string) error {
	c.mu.Lock()
	read := append(slices.Collect(maps.Keys(c.layouts)), topics...)
	c.mu.Unlock()
	err := engine.CheckPolicyNames("topic", c.cfg.Topics, read, func(name string) (bool, error) {
		found, _, err := c.admin.topics(ctx, name)
		_, exists := found[name]
		return exists, err
	})
	if err != nil {
		return fmt.Errorf("kafkashare: %w", err)
	}
	return nil
}

// openReader creates or checks redeliver's topics, and makes the reader of a topic. The reader has the values of ctx,
// but does not end with ctx.
func (c *client) openReader(ctx context.Context, topic string) (*reader, error) {
	l, err := c.prepareLayout(ctx, topic)
	if err != nil {
		return nil, err
	}
	cfg, values := &c.cfg, context.WithoutCancel(ctx)
	r := &reader{
		client: c, layout: l, values: values, unread: make(map[partition]unreadReport),
		sub: &engine.Subscription{
			Origin: l.origin, Group: l.group, Policy: l.policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout, NackDelay: cfg.NackDelay,
			MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight, Values: values,
		},
	}
	r.sub.Operations = &r.operations
	return r, nil
}

func (r *reader) codec() codec { return codec{r.layout} }

// run handles messages as opt says until ctx ends, then waits for those in flight.
func (r *reader) run(ctx context.Context, opt engine.Options[*kgo.Record]) {
	opt.Sub, opt.Codec, opt.Store = r.sub, r.codec(), r.layout
	r.engine = engine.New(opt)
	defer r.engine.Close()
	defer r.sub.RegisterLoad()()
	defer r.operations.Attach(r.sub)()
	r.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
	pause := engine.PausePoller{Sub: r.sub, Mark: (&pauseMarks{client: r.client.client, topic: r.layout.control}).read}
	pause.Poll(ctx)
	var all sync.WaitGroup
	all.Go(func() { pause.Run(ctx, nil) })
	all.Go(func() { r.keepProbing(ctx) })
	for range r.client.cfg.members() {
		all.Go(func() { r.keepRunning(ctx, r.client.cfg.Group, r.runShareMember) })
	}
	all.Go(func() { r.keepRunning(ctx, r.client.cfg.retryGroup(), r.runLevelMember) })
	all.Wait()
}

// healthyAfter is how long a member must read until it counts as healthy.
const healthyAfter = 10 * time.Second

// keepRunning runs a member of a group, and another one after each failure, until ctx ends.
func (r *reader) keepRunning(ctx context.Context, group string, run func(context.Context) error) {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	isDown := false
	for ctx.Err() == nil {
		healthy := time.AfterFunc(healthyAfter, func() { r.reportDown(&isDown, false, nil) })
		err := run(ctx)
		if !healthy.Stop() {
			pauses.Reset()
		}
		if ctx.Err() == nil {
			refused := kafkaname.ToGroup("JoinGroup", "Read", group)
			if errors.Is(err, kerr.TopicAuthorizationFailed) { // of a topic on which messages wait, the probe tells
				refused = kafkaname.ToTopic("Metadata", "Describe", r.layout.origin)
			}
			r.reportDown(&isDown, true, explain(refused, err))
			_ = wait.For(ctx, pauses.NextBackOff()) // the loop notices the end of ctx
		}
	}
}

// reportDown records whether a member is down, which means that it cannot read. It reports when the first member is
// down, again while one is, and when none is.
func (r *reader) reportDown(isDown *bool, down bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // held during the report, so that the last report is the current status
	was := *isDown
	*isDown = down
	switch {
	case down && !was:
		r.downMembers++
	case !down && was:
		if r.downMembers--; r.downMembers == 0 {
			r.downReported = time.Time{}
			r.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
		}
	}
	if down && time.Since(r.downReported) >= repeatInterval {
		r.downReported = time.Now()
		r.sub.EmitChange(redeliver.ChangeDisconnected, "a member of the group is replaced", err)
	}
}

// reportAssigned reports that the consumer group has given its member partitions. If a member fails after that, it is
// reported again.
func (r *reader) reportAssigned(detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.downReported = time.Time{}
	r.sub.EmitChange(redeliver.ChangeAssigned, detail, nil)
}

// runShareMember runs one share group member until ctx ends or it is broken.
func (r *reader) runShareMember(ctx context.Context) error {
	m, err := r.joinShareGroup(ctx)
	if err != nil {
		return err
	}
	r.engine.RunLane(ctx, r.values, m, engine.LaneOptions[*kgo.Record]{MaxAhead: r.client.cfg.pollSize(), DrainTimeout: r.client.cfg.DrainTimeout}, m.start)
	return m.close()
}

// runLevelMember reads the levels and the retry topic until ctx ends or the group is lost.
func (r *reader) runLevelMember(ctx context.Context) error {
	m, err := r.joinRetryGroup(ctx)
	if err != nil {
		return err
	}
	r.level.Store(m)
	return m.run(ctx)
}

// repeatInterval is the time after which a partition that still cannot be read is reported again.
const repeatInterval = time.Minute

// reportFetchErrors reports why partitions cannot be read. hint is appended to the report. If nothing could be read, it
// waits for a second. It returns an error if the member must be replaced: it has lost its group, or its topic was
// created again, which a client of franz-go would never read.
func (r *reader) reportFetchErrors(ctx context.Context, fetched kgo.Fetches, request, hint string) (lost error) {
	failed := false
	fetched.EachError(func(topic string, n int32, err error) {
		switch _, ok := errors.AsType[*kgo.ErrGroupSession](err); {
		case ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed):
		case ok || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.GroupAuthorizationFailed):
			lost = err
		case isDenied(err) && topic != "":
			failed = true
			_ = r.done(kafkaname.ToTopic(request, "Read", topic), err)
		default:
			failed = true
			r.reportUnread(partition{topic, n}, hint, err)
		}
	})
	if failed && fetched.NumRecords() == 0 {
		_ = wait.For(ctx, time.Second) // the caller notices the end of ctx
	}
	return lost
}

// unreadReport is the last report about a partition that could not be read.
type unreadReport struct {
	at   time.Time
	text string // of the error
}

// reportUnread reports that a partition could not be read, unless that was reported recently. Lost records are reported
// at once, because the client returns that error only once.
func (r *reader) reportUnread(p partition, hint string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.unread[p]
	if _, once := errors.AsType[*kgo.ErrDataLoss](err); !once && last.text == err.Error() && time.Since(last.at) < repeatInterval {
		return
	}
	r.unread[p] = unreadReport{time.Now(), err.Error()}
	r.sub.EmitChange(redeliver.ChangeNotRead, fmt.Sprintf("%s/%d%s", p.topic, p.n, hint), err)
}

var errLastDelivery = errors.New("the broker drops the message if this process ends before its copy on the retry topic is confirmed")

// countLastDeliveries counts messages in hand that the broker will not deliver again. It reports each, and when there
// are none.
func (r *reader) countLastDeliveries(n int, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.lastDeliveries += n; {
	case n > 0:
		r.sub.EmitChange(redeliver.ChangeLastDelivery, detail, errLastDelivery)
	case r.lastDeliveries == 0:
		r.sub.EmitChange(redeliver.ChangeLastDeliveryOver, "", nil)
	}
}
