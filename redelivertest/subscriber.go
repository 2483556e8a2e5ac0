package redelivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Subscriber delivers the messages of topics to the client's group; it is a
// Watermill subscriber and safe for concurrent use.
type Subscriber struct {
	client *Client
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	group  sync.WaitGroup
}

// Subscriber returns a subscriber of the client's group. Closing it, as a Router does, ends its
// subscriptions, but not the client.
func (c *Client) Subscriber() *Subscriber {
	s := &Subscriber{client: c}
	s.ctx, s.stop = context.WithCancel(context.Background())
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.subs = append(c.subs, s)
	return s
}

// Subscribe joins the group for a topic, which need not exist, and delivers its messages, the
// oldest first, until ctx ends or the subscriber is closed. Every call adds a member to the group.
// First deliveries of one key run one after another, beside one retry of that key. Later messages
// of a key overtake a failed one, unless Policy.Order says otherwise. A nacked message has failed
// an attempt.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b := s.client.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := s.client.checkOpenLocked(); err != nil {
		return nil, err
	}
	if s.ctx.Err() != nil || s.client.closing {
		return nil, errClosed
	}
	if err := engine.CheckReceiver(ctx, s.client.cfg.policy(topic)); err != nil {
		return nil, fmt.Errorf("redelivertest: %w", err)
	}
	r := newReader(s.client, b.queueLocked(topic, s.client.cfg.Group))
	b.readers = append(b.readers, r)
	run, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	s.group.Go(func() {
		defer stop()
		defer cancel()
		r.run(run, context.WithoutCancel(ctx))
	})
	return r.out, nil
}

// Close ends all subscriptions and returns when their channels are closed. It waits for messages in
// flight, up to Config.DrainTimeout. After that their contexts end, and they are delivered again.
func (s *Subscriber) Close() error {
	b := s.client.b
	b.mu.Lock() // no Subscribe is in progress
	s.stop()
	b.mu.Unlock()
	s.group.Wait()
	return nil
}

var _ message.Subscriber = (*Subscriber)(nil)

// reader is one Subscribe.
type reader struct {
	client *Client
	q      *queue
	sub    *engine.Subscription
	ladder delayqueue.Ladder
	jitter time.Duration
	out    chan *message.Message
	killed chan struct{} // closed by Client.Kill
	source *source
	engine *engine.Engine[*received]
}

func newReader(c *Client, q *queue) *reader {
	p := c.cfg.policy(q.topic)
	r := &reader{
		client: c, q: q, ladder: delayqueue.NewLadder(p), out: make(chan *message.Message), killed: make(chan struct{}),
		sub: &engine.Subscription{
			Origin: q.topic, Group: q.group, Policy: p, Sink: c.recorder(q), Tracer: c.cfg.Tracer, SendTimeout: c.cfg.SendTimeout, NackDelay: c.cfg.NackDelay,
			MaxInFlight: c.cfg.MaxInFlight, MaxRetriesInFlight: c.cfg.MaxInFlight, MinInFlight: c.cfg.MinInFlight, KeepsPlace: p.Order == redeliver.OrderBlocking, Discards: c.cfg.DLQ.Discard,
		},
	}
	_, r.jitter, _ = p.Delays()
	r.source = newSource(r)
	r.engine = engine.New(engine.Options[*received]{Sub: r.sub, Codec: codec{q}, Store: &store{c, q, r.ladder}, Out: r.out})
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
