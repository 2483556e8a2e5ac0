package sqs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscribe implements [mq.Broker].
func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	if c.cfg.NoProvisioning { // otherwise a later Subscribe may create the other queues
		if err := c.checkPolicyNames(ctx, topic); err != nil {
			return nil, nil, err
		}
	}
	l, err := c.provisionedLayout(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if err := engine.CheckReceiver(ctx, l.policy); err != nil {
		return nil, nil, fmt.Errorf("sqs: %w", err)
	}
	router := binding.New(toWatermill)
	r := newReader(context.WithoutCancel(ctx), c, l)
	return router.Messages(), func(ctx context.Context) { r.run(ctx, engine.Options[*delivery]{Handler: router}) }, nil
}

// checkPolicyNames refuses policies of queues that do not exist and that the client does not read.
func (c *client) checkPolicyNames(ctx context.Context, topics ...string) error {
	c.mu.Lock()
	all := append(slices.Collect(maps.Keys(c.layouts)), topics...)
	c.mu.Unlock()
	var read []string
	for _, topic := range all {
		read = append(read, parseTopic(topic).name)
	}
	err := engine.CheckPolicyNames("queue", c.cfg.Queues, read, func(name string) (bool, error) {
		q, err := c.findQueue(ctx, address{name: name})
		return q.Exists, err
	})
	if err != nil {
		return fmt.Errorf("sqs: %w", err)
	}
	return nil
}

// Initialize implements [mq.Broker].
func (c *client) Initialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.SendTimeout)
	defer cancel()
	_, err := c.provisionedLayout(ctx, topic)
	return err
}

// reader is one Subscribe, or one queue of Consume. It reads the queue and the queue of suspects, each with its own
// lane.
type reader struct {
	client       *client
	layout       *layout
	sub          *engine.Subscription
	store        *store
	values       context.Context // the values of Subscribe's context, without its end
	suspectAdded chan struct{}   // signals a new suspect
	pause        engine.PausePoller

	mu       sync.Mutex
	reported redeliver.Change // the last one
	inMemory bool             // the last note was not written or read
}

func newReader(values context.Context, c *client, l *layout) *reader {
	cfg := &c.cfg
	r := &reader{
		client: c, layout: l, store: &store{client: c, layout: l}, values: values, suspectAdded: make(chan struct{}, 1),
		sub: &engine.Subscription{
			Origin: l.main.Name, Group: l.main.Name, Policy: l.policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout,
			NackDelay: cfg.NackDelay, MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight,
			Turn: c.turn, Discards: cfg.DLQ.Discard, WaitsInSource: l.main.FIFO, Operations: &l.operations,
		},
	}
	r.sub.MaxHeld, r.sub.MaxHeldWhy = l.maxHeld()
	r.pause = engine.PausePoller{Sub: r.sub, Mark: r.readPause}
	return r
}

// run reads until ctx ends. opt has the handler.
func (r *reader) run(ctx context.Context, opt engine.Options[*delivery]) {
	opt.Sub, opt.Codec, opt.Store = r.sub, codec{}, r.store
	e := engine.New(opt)
	defer e.Close()
	defer r.sub.RegisterLoad()()
	defer r.layout.operations.Attach(r.sub)()
	r.probeDeletions(ctx)
	r.pause.Poll(ctx)
	var all, watch sync.WaitGroup
	watchCtx, endWatch := context.WithCancel(r.values)
	watch.Go(func() { r.watchOperations(watchCtx) })
	watch.Go(func() {
		r.client.policyNames.Watch(watchCtx, r.sub, func(ctx context.Context) error { return r.client.checkPolicyNames(ctx) })
	})
	all.Go(func() { newSource(r, r.layout.main).run(ctx, e) })
	all.Go(func() { newSource(r, r.layout.suspects).run(ctx, e) })
	all.Wait()
	endWatch()
	watch.Wait()
}

// probeDeletions tries, before the first message runs, whether messages may be deleted.
func (r *reader) probeDeletions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, q := range []*api.Queue{r.layout.main, r.layout.suspects} {
		all.Go(func() { q.Probe(ctx, actionDelete) })
	}
	all.Wait()
}

const (
	// probeInterval is how often operations that fail are tried again.
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
)

// jittered returns d, or up to a tenth less, so that processes which were started together do not ask together.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/10) }

// checkAgain repeats the checks of the start, and takes over the retention of each queue: waits depend on it. It reports
// problems unless they are the known ones, and returns them.
func (r *reader) checkAgain(ctx context.Context, known string) (problems string) {
	ctx, cancel := context.WithTimeout(ctx, r.client.cfg.SendTimeout)
	defer cancel()
	fresh, err := newLayout(&r.client.cfg, r.layout.topic)
	if err != nil {
		return known // it was checked at the start
	}
	now := fresh.queues()
	for i, q := range r.layout.queues() {
		now[i].API, now[i].URL, now[i].OnResult = q.API, q.URL, q.OnResult
		if now[i].Describe(ctx, "", r.client.cfg.MaxMessageSize) != nil || !now[i].Exists || now[i].AttributesDenied {
			return known // operations reports it
		}
		q.SetRetention(now[i].Retention())
	}
	var ps check.Problems
	fresh.check(&ps)
	err = ps.Err()
	if err == nil {
		return ""
	}
	if problems = err.Error(); problems != known {
		r.sub.EmitChange(redeliver.ChangeTopicUnfit, "it was changed since the start; messages may be lost", fmt.Errorf("sqs: %w", err))
	}
	return problems
}

// watchOperations repeats the checks of the start at intervals until ctx ends. It also tries operations that fail, because
// the messages that need them may have gone.
func (r *reader) watchOperations(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	checks := time.NewTimer(jittered(api.ReadInterval))
	defer checks.Stop()
	problems := ""
	for {
		select {
		case <-tick.C:
		case <-checks.C:
			problems = r.checkAgain(ctx, problems)
			checks.Reset(jittered(api.ReadInterval))
			continue
		case <-ctx.Done():
			return
		}
		for _, op := range r.layout.operations.Failing() {
			for _, q := range r.layout.queues() {
				if q.Name == op.Place {
					probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
					q.Probe(probeCtx, op.Name)
					cancel()
				}
			}
		}
	}
}

// wakeSuspects makes the reader look at the queue of suspects.
func (r *reader) wakeSuspects() {
	select {
	case r.suspectAdded <- struct{}{}:
	default:
	}
}

// report emits a change, unless it is the last one that was reported.
func (r *reader) report(change redeliver.Change, detail string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // held during the report, so that the last report is the current status
	if r.reported != change {
		r.sub.EmitChange(change, detail, err)
	}
	r.reported = change
}

// reportInMemory reports the first of several notes that cannot be written or read.
func (r *reader) reportInMemory(err error) {
	r.mu.Lock()
	first := err != nil && !r.inMemory
	r.inMemory = err != nil
	r.mu.Unlock()
	if first {
		r.sub.EmitChange(redeliver.ChangeAttemptsInMemory, "the note of a message that keeps its place cannot be written or read; its attempts begin again in another process", err)
	}
}
