package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/pausemark"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// Subscribe implements [mq.Broker].
func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	if c.cfg.Topology.Existing { // otherwise a later Subscribe may create the other queues
		if err := c.checkPolicyNames(ctx, topic); err != nil {
			return nil, nil, err
		}
	}
	r, err := c.reader(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if err := c.openFirstChannels(ctx, r); err != nil {
		r.releaseChannels()
		return nil, nil, err
	}
	router := binding.New(toWatermill(c.cfg.Marshaler))
	return router.Messages(), func(ctx context.Context) {
		defer r.releaseChannels()
		r.run(ctx, engine.Options[*delivery]{Handler: router})
	}, nil
}

// checkPolicyNames refuses policies of queues that do not exist and that the client does not read.
func (c *client) checkPolicyNames(ctx context.Context, topics ...string) error {
	var read []string
	for _, topic := range topics {
		read = append(read, c.cfg.Topology.queue(topic))
	}
	for _, l := range c.declared.all() {
		read = append(read, l.Queue)
	}
	d := c.broker().Declarer(ctx)
	defer d.Close()
	err := engine.CheckPolicyNames("queue", c.cfg.Queues, read, func(name string) (bool, error) {
		var ps check.Problems // the queue is not ours to judge
		found := d.Exists(&ps, name)
		return found, d.Err()
	})
	if err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	return nil
}

// reader returns the reader of a topic's queue. It declares or checks the queues first, and reads nothing yet, see
// openFirstChannels. The reader has ctx's values, not its end.
func (c *client) reader(ctx context.Context, topic string) (*reader, error) {
	l, err := c.declared.layout(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := engine.CheckReceiver(ctx, l.Policy); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	r := newReader(context.WithoutCancel(ctx), c, l)
	r.queues = r.queueConfigs()
	r.pause.Poll(ctx)
	return r, r.claimChannels()
}

// reader is one Subscribe, or one queue of Consume. It reads the queue, the short levels, the retry queue and the
// queue of suspects, each with one source after another.
type reader struct {
	client *client
	layout *layout.Layout
	sub    *engine.Subscription
	store  *store
	values context.Context // the values of Subscribe's context, without its end
	queues []queueConfig
	pause  engine.PausePoller
	// operations are the requests that the broker may deny while others succeed.
	operations engine.Operations

	// The origin's owner, or a policy, may change these.
	expires, classic atomic.Bool
	originMu         sync.Mutex // held during a check
	origin           topology.Origin
	unfit            string // the problems that were reported
	unasked          bool   // the management API did not answer the latest check

	mu           sync.Mutex
	channels     map[string]*amqp091.Channel // channels that consume, by queue
	reportedLost bool                        // the loss was reported
	lostCode     int                         // the broker's refusal to connect that was reported with it
	reportedRead bool                        // that all queues are read was reported
	missing      string                      // what was reported to be missing
	inMemory     bool                        // the latest note could not be written
}

func newReader(values context.Context, c *client, l *layout.Layout) *reader {
	cfg := &c.cfg
	r := &reader{
		client: c, layout: l, values: values, channels: make(map[string]*amqp091.Channel),
		store: &store{
			sender: c.forwarded, published: c.published, layout: l,
			writers: engine.NewWorkers((*write).do),
		},
		sub: &engine.Subscription{
			Origin: l.Queue, Group: l.Queue, Policy: l.Policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout, NackDelay: cfg.NackDelay,
			MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight, KeepsPlace: l.Ordered(), Turn: c.turn, Discards: l.DeadLetters.Discard,
		},
	}
	r.sub.Operations = &r.operations
	r.store.declare, r.store.record = r.restore, r.recordResult
	r.origin = topology.Origin{Expires: l.Expires, Classic: l.Classic}
	r.expires.Store(l.Expires)
	r.classic.Store(l.Classic)
	if l.Policy.Order == redeliver.OrderThroughRetries {
		r.sub.MaxInPlace = cfg.ConsumerTimeout / 2
	}
	cfg.boundHeld(r.sub)
	mark := pausemark.Reader{Queue: c.marker(l)}
	r.pause = engine.PausePoller{Sub: r.sub, Mark: func(ctx context.Context) (*redeliver.PauseMark, error) {
		found, err := mark.Look(ctx)
		r.recordResult(link.MethodGet, l.Paused(), err)
		return found, err
	}}
	return r
}

// queueConfigs returns the queues to read, with their settings.
func (r *reader) queueConfigs() []queueConfig {
	cfg := r.client.cfg
	back := cfg.retryPrefetch(r.layout.Policy)
	all := []queueConfig{
		{kind: layout.MainQueue, queue: r.layout.Queue, prefetch: cfg.prefetch(r.layout.Policy)},
		{kind: layout.RetryQueue, queue: r.layout.Retry(), prefetch: min(back, maxUnrunPerSlot*cfg.MaxRetriesInFlight)},
		{kind: layout.SuspectQueue, queue: r.layout.Suspects(), prefetch: 1},
	}
	for _, q := range r.layout.Queues {
		if q.Kind == layout.DelayQueue && q.IsRead() {
			all = append(all, queueConfig{kind: layout.DelayQueue, queue: q.Name, level: q.Level, prefetch: back})
		}
	}
	return all
}

// run reads until ctx ends. opt has the handler.
func (r *reader) run(ctx context.Context, opt engine.Options[*delivery]) {
	opt.Sub, opt.Codec, opt.Store = r.sub, r.codec(), r.store
	e := engine.New(opt)
	defer e.Close()
	defer r.store.writers.Close()
	defer r.sub.RegisterLoad()()
	defer r.operations.Attach(r.sub)()
	var all sync.WaitGroup
	all.Go(func() {
		r.client.policyNames.Watch(ctx, r.sub, func(ctx context.Context) error { return r.client.checkPolicyNames(ctx) })
	})
	all.Go(func() { r.checkRegularly(ctx) })
	all.Go(func() { r.pause.Run(ctx, r.reachable) })
	defer r.close()
	for i := range r.queues {
		all.Go(func() { r.keepReading(ctx, e, &r.queues[i]) })
	}
	all.Wait()
}

// newReconnectBackoff returns the backoff between channels that fail.
func newReconnectBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
}

// keepReading reads a queue with one source after another, each on a new channel. After failures it pauses with
// backoff.
func (r *reader) keepReading(ctx context.Context, e *engine.Engine[*delivery], cfg *queueConfig) {
	pause := newReconnectBackoff()
	for ctx.Err() == nil {
		if cfg.first == nil && r.mustWait(*cfg) {
			r.awaitOpen(ctx, cfg.kind)
			continue
		}
		began := time.Now()
		err := r.readUntilEnd(ctx, e, cfg)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errHeldTooLong), errors.Is(err, errAccepted):
			continue
		case errors.Is(err, errSilent):
			cfg.silent = true
			continue
		case errors.Is(err, errPaused):
			r.awaitOpen(ctx, cfg.kind)
			continue
		case time.Since(began) > 10*time.Second:
			pause.Reset()
		}
		if cfg.isCautious() {
			r.recordResult(link.MethodAck, cfg.queue, err)
		} else {
			r.recordResult(cfg.method(), cfg.queue, err)
		}
		if cfg.denied = link.IsAnswer(err) && link.IsDenied(err); cfg.denied {
			r.checkLogin(ctx, cfg.queue)
		} else {
			r.disconnected(cfg.queue, err)
		}
		_ = wait.For(ctx, max(pause.NextBackOff(), cfg.refusalPause())) // the loop notices the end of ctx
	}
}

// checkLogin asks for the right to read a queue that was denied, which logs in again if that helps.
func (r *reader) checkLogin(ctx context.Context, queue string) {
	d := r.client.broker().Declarer(ctx)
	defer d.Close()
	d.CheckRead(queue)
}

// mustWait reports whether the queue must not be read, because it is paused. A queue that expires without a consumer is
// read.
func (r *reader) mustWait(cfg queueConfig) bool {
	return r.isPaused(cfg.kind) && !(cfg.kind == layout.MainQueue && r.expires.Load())
}

// isPaused reports whether an operator has paused the queues of a kind.
func (r *reader) isPaused(kind layout.Kind) bool {
	return r.sub.Paused() && (kind == layout.MainQueue || !r.sub.NewGate.Closed())
}

// isShut reports whether no message of a queue may begin.
func (r *reader) isShut(kind layout.Kind) bool {
	return r.sub.Gate.Closed() || kind == layout.MainQueue && r.sub.NewGate.Closed()
}

// awaitOpen returns when messages of a queue may begin, or ctx ends, or it is time to see whether the queue must be read in
// the pause, because it expires now.
func (r *reader) awaitOpen(ctx context.Context, kind layout.Kind) {
	ctx, cancel := context.WithTimeout(ctx, checkInterval)
	defer cancel()
	gates := []*engine.Gate{&r.sub.Gate, &r.sub.NewGate}
	if kind != layout.MainQueue {
		gates = gates[:1]
	}
	for _, g := range gates {
		select {
		case <-g.Opened():
		case <-ctx.Done():
		}
	}
}

// readUntilEnd reads a queue on its own channel until the source ends.
func (r *reader) readUntilEnd(ctx context.Context, e *engine.Engine[*delivery], cfg *queueConfig) error {
	ch, in, err := r.openChecked(ctx, cfg)
	if link.IsNotFound(err) {
		// The queue was deleted. Redeliver's queues, and the origin if redeliver may create it, are declared again.
		if err = r.restore(ctx, err); err == nil {
			ch, in, err = r.openChecked(ctx, cfg)
		}
	}
	if err != nil {
		return err
	}
	s := newSource(r, *cfg, ch)
	s.mayBeForgotten = cfg.kind == layout.MainQueue && !r.classic.Load() && r.client.consuming.ForgetsConsumers()
	if cfg.kind != layout.SuspectQueue { // the suspects are only read when there are some
		r.recordResult(cfg.method(), cfg.queue, nil)
	}
	r.reportConsuming(cfg.queue, ch, cfg.silent || cfg.denied)
	cfg.silent, cfg.denied = false, false
	defer r.stopped(cfg.queue)
	err = s.run(ctx, e, in)
	if cfg.refusals = s.countRefusals(err); cfg.refusals == 0 && s.accepted.Load() {
		r.recordResult(link.MethodAck, cfg.queue, nil)
	}
	if s.hold.paused { // the broker counts returns, and in an alarm no message can be rewritten
		select {
		case <-r.client.publishing.Blocked.Opened():
		case <-ctx.Done():
		}
	}
	return err
}

// disconnected reports a loss once, and again if the broker refuses the next connection. reportConsuming reports its end.
func (r *reader) disconnected(queue string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // held during the report, so that the last report is the current status
	code := link.RefusalToConnect(err)
	if !r.reportedLost || code != 0 && code != r.lostCode {
		r.lostCode = code
		r.sub.EmitChange(redeliver.ChangeDisconnected, "reading "+queue+"; trying again with backoff", err)
	}
	r.reportedLost = true
}

// reportConsuming records that a queue is read, and reports when all are. If silently is set, the channel was replaced as
// a precaution, and only the end of a loss is reported.
func (r *reader) reportConsuming(queue string, ch *amqp091.Channel, silently bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.channels[queue] = ch
	all := len(r.channels) == len(r.queues)
	for _, ch := range r.channels { // a source may not have noticed yet that its channel has ended
		all = all && !ch.IsClosed()
	}
	report := all && (r.reportedLost || !r.reportedRead || !silently)
	r.reportedLost = r.reportedLost && !all
	if report {
		r.reportedRead = true
		r.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
	}
}

// reachable reports the end of a loss in a pause of the group, in which no queue is read.
func (r *reader) reachable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reportedLost && len(r.channels) == 0 {
		r.reportedLost = false
		r.sub.EmitChange(redeliver.ChangeConsuming, "when the pause ends", nil)
	}
}

func (r *reader) stopped(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.channels, queue)
}
