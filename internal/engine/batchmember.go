package engine

import (
	"context"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// BatchMember is a record in a batch. It needs no goroutine of its own.
type BatchMember[R any] struct {
	Batched
	Record R

	d *Delivery
}

// Context returns the message's context, which has its state.
func (m *BatchMember[R]) Context() context.Context { return m.d }

// State returns the message's state before the attempt that runs now.
func (m *BatchMember[R]) State() redeliver.State { return m.d.State() }

// newMember returns the entry as it waits for a batch, or nil if the entry must not run.
func (eng *Engine[R]) newMember(e *entry[R], d *Delivery) *Batched {
	if d.Lost() { // its session ended while it was ready
		_ = d.abandon(nil)
		return nil
	}
	d.runs = true
	m := e.member
	if e.member = nil; m == nil { // not its first batch
		m = new(BatchMember[R])
	}
	m.Record, m.d = e.Record, d
	d.begun, d.batched = true, &m.Batched
	d.sub.RecordMiddleware()
	if err := d.Invalid(); err != nil {
		_ = d.fail(err, false)
		return nil
	}
	d.began = waitsForBatch
	m.Init(e.lane.ctx, m, d, len(e.body()))
	return &m.Batched
}

func (eng *Engine[R]) callBatch(b *Batch, all []*Batched) error {
	members := make([]*BatchMember[R], 0, len(all))
	for _, m := range all {
		if member, ok := m.waiter.(*BatchMember[R]); ok { // all are
			members = append(members, member)
		}
	}
	return eng.opt.Batch(b, members)
}

// SetAnswer implements [BatchWaiter].
func (m *BatchMember[R]) SetAnswer(err error) {
	defer m.d.End(nil)
	counts, answer := m.d.takeAnswer(err)
	switch {
	case !counts:
	case answer == nil:
		m.d.EndSpan(observe.OutcomeSucceeded, nil)
		m.d.succeed()
	default:
		_ = m.d.fail(answer, false)
	}
}
