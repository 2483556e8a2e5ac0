package middleware

import (
	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// gatherer makes the batches of one subscription.
type gatherer struct {
	fn      BatchHandler
	batches *engine.Batches
	refused error // not nil: no message of the subscription is handled
}

// newGatherer returns a gatherer; sub is nil for messages that no subscriber of redeliver delivered.
func newGatherer(c redeliver.BatchConfig, fn BatchHandler, sub *engine.Subscription) *gatherer {
	g := &gatherer{fn: fn}
	g.batches = engine.NewBatches(c, sub, g.callBatch)
	if sub == nil {
		return g
	}
	var ps check.Problems
	engine.CheckBatchSize(&ps, c, sub.MaxInFlight)
	if engine.CheckBatchWait(&ps, c, sub); ps != nil {
		g.refused = ps.Err()
		sub.EmitChange(redeliver.ChangeBatchRefused, "no message is handled until the service starts with another configuration", g.refused)
	}
	return g
}

func (g *gatherer) callBatch(b *engine.Batch, all []*engine.Batched) error {
	return g.fn(b, newMessageBatch(b, all))
}
