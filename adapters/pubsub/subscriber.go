package pubsub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// Subscribe implements [mq.Broker].
func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	l, err := within(ctx, "pubsub: making the topics of "+topic, func() (*layout, error) { return c.readyLayout(topic) }, func(*layout) {})
	if err != nil {
		return nil, nil, err
	}
	r := newReader(context.WithoutCancel(ctx), c, l)
	sources, err := r.subscribeAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	return r.router.Messages(), func(ctx context.Context) { r.run(ctx, sources) }, nil
}

// Initialize implements [mq.Broker].
func (c *client) Initialize(topic string) error {
	if _, err := c.readyLayout(topic); err != nil {
		return err
	}
	if init, ok := c.cfg.Subscriber.(message.SubscribeInitializer); ok {
		return init.SubscribeInitialize(topic)
	}
	return nil
}

// checkPolicyNames returns an error if Config.Topics names topics that the client does not read. Whether they exist
// cannot be known.
func (c *client) checkPolicyNames(context.Context) error {
	c.preparing.Lock()
	read := slices.Collect(maps.Keys(c.layouts))
	c.preparing.Unlock()
	err := engine.CheckPolicyNames("topic", c.cfg.Topics, read, func(string) (bool, error) { return false, nil })
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	return nil
}

// reader reads all topics of a subscription for one call of Subscribe.
type reader struct {
	client *client
	layout *layout
	sub    *engine.Subscription
	router *binding.Handler[*record]
	values context.Context // the values of Subscribe's context, without its end

	mu   sync.Mutex
	down int // inputs without a Subscribe
}

const maxPause = 10 * time.Second // between two Subscribes of an input

var errEnded = errors.New("the subscriber has closed the channel")

func newReader(values context.Context, c *client, l *layout) *reader {
	cfg := &c.cfg
	return &reader{
		client: c, layout: l, values: values, router: binding.New(toWatermill(cfg.Decode)),
		sub: &engine.Subscription{
			Origin: l.topic, Group: l.group, Policy: l.policy, Sink: cfg.Sink, Tracer: cfg.Tracer, SendTimeout: cfg.SendTimeout, NackDelay: cfg.NackDelay,
			MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight, Values: values,
		},
	}
}

// inputs returns all topics to read, once for each Subscribe.
func (r *reader) inputs() (all []input) {
	for i, topic := range r.layout.delays {
		all = append(all, input{kind: delays, topic: topic, nth: i})
	}
	for range r.client.cfg.MaxInFlight {
		all = append(all, input{kind: retries, topic: r.layout.retry}, input{kind: origin, topic: r.layout.topic})
	}
	return all
}

// subscribeAll returns a source for each input, or none.
func (r *reader) subscribeAll(ctx context.Context) (all []*source, err error) {
	for _, in := range r.inputs() {
		s, err := r.subscribe(ctx, in)
		if err != nil {
			for _, made := range all {
				made.cancel()
				go nackAll(made.in)
			}
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// run delivers messages until ctx ends, then waits for those in flight.
func (r *reader) run(ctx context.Context, sources []*source) {
	cfg := &r.client.cfg
	e := engine.New(engine.Options[*record]{
		Sub: r.sub, Codec: codec{r.layout}, Store: &store{cfg, r.layout, r.sub}, Handler: r.router,
	})
	defer e.Close()
	defer r.sub.RegisterLoad()()
	r.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
	var all sync.WaitGroup
	all.Go(func() { r.client.policyNames.Watch(ctx, r.sub, r.client.checkPolicyNames) })
	for _, s := range sources {
		all.Go(func() { r.readInput(ctx, e, s) })
	}
	all.Wait()
}

// readInput runs a source. It starts another one when the user's subscriber has closed the channel: some subscribers do
// that at a message that they cannot read.
func (r *reader) readInput(ctx context.Context, e *engine.Engine[*record], s *source) {
	pause := backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0))
	for {
		began := time.Now()
		s.run(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause.Reset()
		}
		r.reportDisconnected(s.topic, errEnded)
		for err := errEnded; err != nil; {
			if wait.For(ctx, pause.NextBackOff()) != nil {
				return
			}
			var again *source
			if again, err = r.subscribe(ctx, s.input); err == nil {
				s = again
			}
		}
		r.reportReconnected()
	}
}

// reportDisconnected reports that an input has no Subscribe, unless another one has none already.
func (r *reader) reportDisconnected(topic string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock() // only after the report, so that reports are in order
	if r.down++; r.down == 1 {
		r.sub.EmitChange(redeliver.ChangeDisconnected, "reading "+topic+"; subscribing again with backoff", err)
	}
}

// reportReconnected reports that all inputs have a Subscribe again, if that was the last one without.
func (r *reader) reportReconnected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down--; r.down == 0 {
		r.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
	}
}
