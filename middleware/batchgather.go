package middleware

import (
	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// gatherer is the batches of one subscription: the queue in which messages wait
// for theirs, and what the queue does not know of them.
type gatherer struct {
	config  BatchConfig
	fn      BatchFunc
	sub     *delayqueue.Subscription // nil for messages of other subscribers
	queue   *delayqueue.Batches
	refused error
}

func newGatherer(c BatchConfig, fn BatchFunc, sub *delayqueue.Subscription) *gatherer {
	g := &gatherer{config: c, fn: fn, sub: sub}
	if sub != nil {
		var ps redeliver.Problems
		if c.CheckSize(&ps, sub.MaxInFlight); ps != nil {
			g.refused = ps.Err()
			sub.Tell(redeliver.SubscriptionChanged{
				Origin: sub.Origin, Group: sub.Group, Change: redeliver.ChangeBatchRefused,
				Detail: "no message is handled until the service starts with another configuration", Err: g.refused,
			})
		}
	}
	g.queue = delayqueue.NewBatches(c, sub, g.call)
	return g
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
