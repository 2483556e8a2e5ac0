package middleware

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// BatchHandler handles the messages of a batch. It may answer each message alone. The messages without an answer are acked when it
// returns nil, and fail with its error otherwise. A panic is an error, as for a single message. An error for several messages sends
// none of them to the DLQ: they run again in smaller batches, and the last attempt of each is alone.
//
// ctx ends after the policy's Timeout, counted from the call, and when the partitions or connections of all messages
// are lost. When a single message is lost to this process (SQS), only the message's own context ends. ctx has the
// values of Subscribe's context, or none for messages of other subscribers. The values of a message's context, such as
// its state, are only in the message's own context. The function must be safe for concurrent use if Concurrency is
// above 1.
type BatchHandler func(ctx context.Context, b *MessageBatch) error

// Batch returns a handler that handles many messages at once:
//
//	index, err := middleware.Batch(redeliver.BatchConfig{Size: 100, Timeout: time.Second},
//		func(ctx context.Context, b *middleware.MessageBatch) error { ... })
//	...
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("index", "documents", search.Subscriber(), index)
//
// Put it inside Retry. Every message has its own attempts, delays, DLQ reason and Timeout. The Timeout counts from the call of the
// batch function, not while a message waits for its batch. A message whose context ends while it waits leaves the
// queue. A message with its own answer is settled, while its batch still runs, as soon as the earlier messages of its key in the
// batch have an answer.
//
// A batch has messages of one subscription, in the order of arrival. If the subscriber runs messages of one key one after another,
// a batch may have several of them, and no two batches that run have messages of one key. Retries are in batches of their own. When
// the subscriber closes, or gives up a partition, the waiting messages run without waiting for more. A suspect, which runs alone, is
// a batch of its own. The handler must get all messages of the subscription.
//
// A function that exceeds the Timeout by more than a second is stuck: its messages were settled, and the next batch begins beside it.
//
// A Size above the subscription's MaxInFlight is refused, and so is a Timeout after which the broker would have taken the messages
// back: the sink gets a SubscriptionChanged ("batches refused"), and the messages of the subscription are not handled and stay
// unacked. An invalid config and a nil fn are a
// [redeliver.ConfigError].
func Batch(config redeliver.BatchConfig, fn BatchHandler) (message.NoPublishHandlerFunc, error) {
	var ps check.Problems
	ps.Include(config.Validate())
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
	config redeliver.BatchConfig
	fn     BatchHandler
	all    sync.Map   // of *gatherer, by *engine.Subscription
	mu     sync.Mutex // locked to add to all
}

// add adds a message to the queue of its subscription.
func (b *batches) add(msg *message.Message) *batchWaiter {
	m := &batchWaiter{Message: msg, ctx: msg.Context(), settled: make(chan struct{})}
	d := engine.FromContext(m.ctx)
	var sub *engine.Subscription
	begun := false
	if d != nil {
		sub = d.Sub()
		d.RecordBatches()
		begun = d.Begun()
	}
	g := b.gatherer(sub)
	m.batched.Init(m.ctx, m, d, binding.SizeOf(msg))
	switch {
	case begun && !d.StopClock(): // its Timeout was over before it came here
		m.SetAnswer(context.Cause(m.ctx))
	case g.refused != nil:
		<-m.ctx.Done()
		m.batched.RestartClock()
		m.SetAnswer(fmt.Errorf("%w: %w", g.refused, context.Cause(m.ctx)))
	default:
		if begun {
			d.SetBatched(&m.batched) // nothing reads it before the attempt begins again
		}
		g.batches.Add(&m.batched)
	}
	return m
}

// gatherer returns the gatherer of a subscription; a nil sub means messages that no subscriber of redeliver delivered.
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
