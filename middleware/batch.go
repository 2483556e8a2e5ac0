package middleware

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Defaults of [BatchConfig].
const (
	DefaultBatchSize    = engine.DefaultBatchSize
	DefaultBatchTimeout = engine.DefaultBatchTimeout
)

// NoWait as BatchConfig.Timeout: a batch does not wait for more messages. It has those that came while others ran.
const NoWait = engine.NoWait

// BatchConfig says when a batch runs: as soon as its Size, its Bytes or its Timeout is reached. No batch is empty. Adapters'
// ConsumeBatch has the same configuration.
type BatchConfig = engine.BatchConfig

// BatchFunc handles the messages of a batch. It may answer each message alone. The messages without an answer are acked when it
// returns nil, and fail with its error otherwise. A panic is an error, as for a single message.
//
// ctx ends with the policy's Timeout, which counts from the call, and when every partition or connection of its messages is lost. A
// single message that is lost to this process (SQS) ends only its own context. ctx has the values of Subscribe's context, and none of
// a message's: those, the state among them, are in each message's own context. (A batch of messages that no subscriber of redeliver
// delivered has no values.) The function must be safe for concurrent use where Concurrency is above 1.
type BatchFunc func(ctx context.Context, b *MessageBatch) error

// Batch returns a handler that handles many messages at once:
//
//	index, err := middleware.Batch(middleware.BatchConfig{Size: 100, Timeout: time.Second},
//		func(ctx context.Context, b *middleware.MessageBatch) error { ... })
//	...
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("index", "documents", search.Subscriber(), index)
//
// Put Retry around it. Every message has its own attempts, delays, DLQ reason and Timeout. The Timeout counts from the call of the
// batch function, not while a message waits for its batch. A message whose context ends while it waits leaves the queue. A message
// with an answer of its own is acked, or moves on, at once, while its batch still runs.
//
// A batch has messages of one subscription. Where the subscriber runs messages of one key one after another (Kafka), a batch has at
// most one of each key, and one retry. When the subscriber closes, or gives up a partition, the waiting messages run without waiting
// for more. A message that runs alone, because its process died while it ran, is a batch of its own.
//
// A function that exceeds the Timeout by more than a second is stuck: its messages have moved on, and the next batch begins beside it.
//
// A Size above the subscription's MaxInFlight is refused: the sink gets a SubscriptionChanged ("batches refused"), and no message of
// the subscription is handled; they stay unacked. An invalid config and a nil fn are a [redeliver.ConfigError].
func Batch(config BatchConfig, fn BatchFunc) (message.NoPublishHandlerFunc, error) {
	var ps redeliver.Problems
	config.Check(&ps)
	if fn == nil {
		ps.Add("fn", "nil", "it is required")
	}
	if err := ps.Err(); err != nil {
		return nil, err
	}
	b := &batches{config: config.WithDefaults(), fn: fn}
	return func(msg *message.Message) error {
		m := b.add(msg)
		<-m.settled
		return m.err
	}, nil
}

// batches has the state of one call of Batch: a gatherer for each subscription.
type batches struct {
	config BatchConfig
	fn     BatchFunc
	all    sync.Map   // of *gatherer, by *engine.Subscription
	mu     sync.Mutex // for writers
}

// add adds a message to the queue of its subscription.
func (b *batches) add(msg *message.Message) *BatchMessage {
	m := &BatchMessage{Message: msg, ctx: msg.Context(), settled: make(chan struct{})}
	d := engine.FromContext(m.ctx)
	var sub *engine.Subscription
	var t *task
	if d != nil {
		sub = d.Sub()
		d.Gathers()
		t, _ = d.Task().(*task)
	}
	g := b.gatherer(sub)
	m.place.Init(m.ctx, (*batchWaiter)(m), d, len(m.Payload))
	g.batches.Lock()
	switch {
	case t != nil && !d.Gather(): // its time was over before it came here
		g.batches.Unlock()
		m.deliverAnswer(context.Cause(m.ctx))
	case g.refused != nil:
		g.batches.Unlock()
		<-m.ctx.Done()
		m.place.Leave()
		m.deliverAnswer(fmt.Errorf("%w: %w", g.refused, context.Cause(m.ctx)))
	default:
		if t != nil {
			t.batch = m // nothing reads it before the attempt begins again
		}
		g.batches.Join(&m.place)
		g.batches.Unlock()
	}
	return m
}

// gatherer returns the gatherer of a subscription; nil stands for messages that no subscriber of redeliver delivered.
func (b *batches) gatherer(sub *engine.Subscription) *gatherer {
	known, ok := b.all.Load(sub)
	if !ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		if known, ok = b.all.Load(sub); !ok {
			known = newGatherer(b.config, b.fn, sub)
			b.all.Store(sub, known)
		}
	}
	g, _ := known.(*gatherer)
	return g
}
