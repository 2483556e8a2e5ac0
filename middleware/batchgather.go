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

	spare []BatchMessage // guarded by the queue's lock
}

func newGatherer(c BatchConfig, fn BatchFunc, sub *delayqueue.Subscription) *gatherer {
	g := &gatherer{config: c, fn: fn, sub: sub}
	if sub != nil {
		var ps redeliver.Problems
		if c.CheckSize(&ps, sub.MaxInFlight); ps != nil {
			g.refused = ps.Err()
			sub.Tell(redeliver.SubscriptionChanged{
				Origin: sub.Origin, Group: sub.Group, Change: "batches refused",
				Detail: "no message is handled until the service starts with another configuration", Err: g.refused,
			})
		}
	}
	g.queue = delayqueue.NewBatches(c, sub, g.call)
	return g
}

// slab bounds how many messages are made at a time.
const slab = 128

// message is a new one. They are made many at a time, by the goroutines of the
// batches: what allocates takes a deep stack, which those of messages would have
// to grow. What a stuck function has holds its neighbours as well: a batch's
// worth at most. The caller holds the queue's lock.
func (g *gatherer) message() *BatchMessage {
	if len(g.spare) == 0 {
		return &BatchMessage{}
	}
	m := &g.spare[0]
	g.spare = g.spare[1:]
	return m
}

// provide makes messages for the batches to come.
func (g *gatherer) provide() {
	spare := make([]BatchMessage, min(g.config.Size, slab))
	g.queue.Lock()
	defer g.queue.Unlock()
	if len(g.spare) < len(spare)/2 {
		g.spare = spare
	}
}

// call calls the function.
func (g *gatherer) call(b *delayqueue.Batch, all []*delayqueue.Batched) error {
	g.provide()
	mb := &MessageBatch{Messages: make([]*BatchMessage, 0, len(all)), Origin: b.Origin, Group: b.Group, batch: b}
	for _, m := range all {
		if w, ok := m.Waiter().(*waiter); ok { // all are
			mb.Messages = append(mb.Messages, (*BatchMessage)(w))
		}
	}
	return g.fn(b, mb)
}
