package middleware

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Defaults of [BatchConfig].
const (
	DefaultBatchSize    = 10
	DefaultBatchTimeout = 5 * time.Second
)

// NoWait is a [BatchConfig] Timeout: what is there is handled at once, without
// waiting for more. Batches are of what has gathered while others ran.
const NoWait time.Duration = -1

// BatchConfig says when a batch is run: as soon as its Size, its Bytes or its
// Timeout is reached, and never empty.
type BatchConfig struct {
	// Size is the most messages of a batch. It must not be above the MaxInFlight
	// of the subscriber, which could never deliver so many: such a subscription
	// is refused, see [Batch]. Default 10.
	Size int
	// Bytes bounds the payloads of a batch, in all. A message that alone has more
	// is a batch of its own. Default: no bound.
	Bytes int
	// Timeout is the longest that the first message of a batch waits for others
	// before its batch may run. Default 5 s; [NoWait] for none.
	Timeout time.Duration
	// Concurrency is how many batches of one subscription run at once. To keep
	// that many busy the subscriber needs a MaxInFlight of (Concurrency + 1) x
	// Size. Default 1.
	Concurrency int
}

func (c BatchConfig) withDefaults() BatchConfig {
	if c.Size == 0 {
		c.Size = DefaultBatchSize
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultBatchTimeout
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	return c
}

// Validate returns all that is wrong with the configuration in one
// [redeliver.ConfigError].
func (c BatchConfig) Validate() error { return c.problems().Err() }

func (c BatchConfig) problems() (ps redeliver.Problems) {
	for _, f := range []struct {
		field string
		value int
		zero  string
	}{{"Size", c.Size, "10"}, {"Bytes", c.Bytes, "no bound"}, {"Concurrency", c.Concurrency, "1"}} {
		if f.value < 0 {
			ps.Add("BatchConfig."+f.field, f.value, "must not be negative; 0 is the default, "+f.zero)
		}
	}
	if c.Timeout < 0 && c.Timeout != NoWait {
		ps.Add("BatchConfig.Timeout", c.Timeout, "must not be negative; 0 is the default, 5s, and NoWait runs what is there at once")
	}
	return ps
}

// BatchFunc handles the messages of a batch. Each may be settled by itself; what
// is not, when the function returns, is acked after nil and has failed with the
// error after an error. A panic is an error, as for a single message.
//
// ctx ends with the policy's Timeout, which counts from the call, and when all
// messages of the batch were lost to this process. It carries the values of the
// context of Subscribe; a message's state is in the message's own context. The
// function must be safe for concurrent use where Concurrency is above 1.
type BatchFunc func(ctx context.Context, b *MessageBatch) error

// Batch returns a handler that handles many messages at once:
//
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("index", "documents", search.Subscriber(), middleware.Batch(
//		middleware.BatchConfig{Size: 100, Timeout: time.Second},
//		func(ctx context.Context, b *middleware.MessageBatch) error { ... }))
//
// Retry stands around it and knows nothing of batches: every message has its own
// attempts, delays, DLQ reason and Timeout. The Timeout counts from the start of
// the batch function; while a message waits for its batch its clock stands still.
// One whose context ends while it waits leaves the queue. A message that is
// settled by itself is acked, or moves on, at once, while its batch still runs.
//
// A batch has messages of one subscription. Where the subscriber runs messages of
// one key one after another (Kafka), a batch has at most one of each key, and one
// retry. When the subscriber closes, or gives up a partition, what waits is run
// without waiting for more. A message that is to run alone, because its process
// died while it ran, is a batch of its own.
//
// A function that outlives the Timeout by more than a second is stuck: its
// messages have moved on, and the next batch begins beside it.
//
// A Size above the subscription's MaxInFlight is refused: the sink is told
// (SubscriptionChanged, "batches refused"), and no message of the subscription
// is handled; they stay unacked. Batch panics with a [redeliver.ConfigError] when
// config is invalid or fn is nil.
func Batch(config BatchConfig, fn BatchFunc) message.NoPublishHandlerFunc {
	ps := config.problems()
	if fn == nil {
		ps.Add("fn", "nil", "is required")
	}
	if err := ps.Err(); err != nil {
		panic(err)
	}
	b := &batches{config: config.withDefaults(), fn: fn}
	return func(msg *message.Message) error {
		m := b.add(msg)
		if !m.done.Load() {
			m.verdict.Wait()
		}
		return m.result()
	}
}

// batches is one Batch: a gatherer for each subscription.
type batches struct {
	config BatchConfig
	fn     BatchFunc
	all    atomic.Pointer[[]*gatherer] // a few
	mu     sync.Mutex                  // held to add one
}

// add adds a message to what waits. When it has no verdict yet, its gatherer is
// locked and waiting for the verdict unlocks it. It stands apart because its frame is not to
// lie on the stack of every message that waits: goroutines are young there, and a
// stack that grows costs more than all the rest.
//
//go:noinline
func (b *batches) add(msg *message.Message) *BatchMessage {
	ctx := msg.Context()
	a := attemptOf(ctx)
	var d *delayqueue.Delivery
	if a != nil {
		d = a.Delivery()
	} else {
		d = delayqueue.FromContext(ctx)
	}
	var sub *delayqueue.Subscription
	if d != nil {
		sub = d.Sub
	}
	g := b.gatherer(sub)
	g.mu.Lock()
	m := g.message()
	m.Message, m.ctx, m.a, m.d = msg, ctx, a, d
	switch {
	case m.a != nil && !m.a.gather(m): // something in between took all its time
		g.mu.Unlock()
		m.give(context.Cause(m.ctx))
	case g.refused != nil:
		g.mu.Unlock()
		<-m.ctx.Done()
		if m.a != nil {
			m.a.Leave()
		}
		m.give(fmt.Errorf("%w: %w", g.refused, context.Cause(m.ctx)))
	default:
		g.join(m)
	}
	return m
}

// gatherer returns what gathers the messages of a subscription; nil is for those
// that come from no subscriber of redeliver.
func (b *batches) gatherer(sub *delayqueue.Subscription) *gatherer {
	if g := b.find(sub); g != nil {
		return g
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.find(sub); g != nil {
		return g
	}
	g := newGatherer(b.config, b.fn, sub)
	all := []*gatherer{g}
	if old := b.all.Load(); old != nil {
		all = append(all, *old...)
	}
	b.all.Store(&all)
	return g
}

func (b *batches) find(sub *delayqueue.Subscription) *gatherer {
	if all := b.all.Load(); all != nil {
		for _, g := range *all {
			if g.sub == sub {
				return g
			}
		}
	}
	return nil
}
