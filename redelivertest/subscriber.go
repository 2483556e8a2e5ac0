package redelivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscribe implements [mq.Broker]. The topic need not exist. The oldest message is delivered first. First deliveries of one key run
// one after another, beside one retry of that key.
func (c *memberClient) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, func(context.Context), error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.checkOpenLocked(); err != nil {
		return nil, nil, err
	}
	if c.closing {
		return nil, nil, errClosed
	}
	if err := engine.CheckReceiver(ctx, c.cfg.policy(topic)); err != nil {
		return nil, nil, fmt.Errorf("redelivertest: %w", err)
	}
	r := newReader(c, b.queueLocked(topic, c.cfg.Group))
	b.readers = append(b.readers, r)
	values := context.WithoutCancel(ctx)
	return r.router.Messages(), func(ctx context.Context) { r.run(ctx, values) }, nil
}

// Initialize implements [mq.Broker]. There is nothing to create.
func (c *memberClient) Initialize(string) error { return nil }

// reader is one Subscribe.
type reader struct {
	client *memberClient
	q      *queue
	sub    *engine.Subscription
	ladder delayqueue.Ladder
	jitter time.Duration
	router *binding.Handler[*received]
	killed chan struct{} // closed by Client.Kill
	source *source
	engine *engine.Engine[*received]
}

func newReader(c *memberClient, q *queue) *reader {
	p := c.cfg.policy(q.topic)
	r := &reader{
		client: c, q: q, ladder: delayqueue.NewLadder(p), router: binding.New(toWatermill), killed: make(chan struct{}),
		sub: &engine.Subscription{
			Origin: q.topic, Group: q.group, Policy: p, Sink: c.recorder(q), Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, NackDelay: c.cfg.NackDelay,
			MaxInFlight: c.cfg.MaxInFlight, MaxRetriesInFlight: c.cfg.MaxInFlight, MinInFlight: c.cfg.MinInFlight, KeepsPlace: p.Order == redeliver.OrderBlocking, Discards: c.cfg.DLQ.Discard,
		},
	}
	_, r.jitter, _ = p.Delays()
	r.source = newSource(r)
	r.engine = engine.New(engine.Options[*received]{Sub: r.sub, Codec: codec{q}, Store: &store{c, q, r.ladder}, Handler: r.router})
	return r
}

// run delivers until ctx ends, then waits for the messages in flight.
func (r *reader) run(ctx, values context.Context) {
	defer r.engine.Close()
	defer r.leave()
	defer r.sub.RegisterLoad()()
	r.applyPause()
	r.engine.RunLane(ctx, values, r.source, engine.LaneOptions[*received]{
		MaxAhead: 2 * r.client.cfg.MaxInFlight, MaxWaiting: 1 << 30, DrainTimeout: r.client.cfg.DrainTimeout,
		Gaters: []engine.Gater[*received]{r.source},
	}, r.begin)
}

// begin makes the broker wake the lane, which checks for messages when it begins.
func (r *reader) begin(l driver.Lane[*received]) {
	b := r.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	r.source.lane = l
}
