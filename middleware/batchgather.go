package middleware

import (
	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// gatherer is the batches of one subscription: the queue in which messages wait for theirs, and what the queue does not know
// of them.
type gatherer struct {
	config  BatchConfig
	fn      BatchFunc
	sub     any                 // nil for messages of other subscribers
	queue   *delayqueue.Batches // of subscribers that do not run on the engine, and of others
	batches *engine.Batches     // of those that do
	refused error
}

func newGatherer(c BatchConfig, fn BatchFunc, sub any) *gatherer {
	g := &gatherer{config: c, fn: fn, sub: sub}
	switch sub := sub.(type) {
	case *engine.Subscription:
		g.refuse(sub.MaxInFlight, sub.Tell, sub.Origin, sub.Group)
		g.batches = engine.NewBatches(c, sub, g.callBatch)
	case *delayqueue.Subscription:
		g.refuse(sub.MaxInFlight, sub.Tell, sub.Origin, sub.Group)
		g.queue = delayqueue.NewBatches(c, sub, g.call)
	default:
		g.queue = delayqueue.NewBatches(c, nil, g.call)
	}
	return g
}

// refuse refuses all messages of a subscription that can never have a full batch.
func (g *gatherer) refuse(maxInFlight int, tell func(redeliver.Event), origin, group string) {
	var ps redeliver.Problems
	if g.config.CheckSize(&ps, maxInFlight); ps != nil {
		g.refused = ps.Err()
		tell(redeliver.SubscriptionChanged{
			Origin: origin, Group: group, Change: redeliver.ChangeBatchRefused,
			Detail: "no message is handled until the service starts with another configuration", Err: g.refused,
		})
	}
}

// callBatch calls the function.
func (g *gatherer) callBatch(b *engine.Batch, all []*engine.Batched) error {
	mb := &MessageBatch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		if w, ok := m.Waiter().(*waiter); ok { // all are
			mb.Messages = append(mb.Messages, (*BatchMessage)(w))
		}
	}
	return g.fn(b, mb)
}

// call calls the function.
func (g *gatherer) call(b *delayqueue.Batch, all []*delayqueue.Batched) error {
	mb := &MessageBatch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		if w, ok := m.Waiter().(*waiter); ok { // all are
			mb.Messages = append(mb.Messages, (*BatchMessage)(w))
		}
	}
	return g.fn(b, mb)
}
