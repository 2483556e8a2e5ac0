package redelivertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/redeliver/redeliver/deadletter"
)

// claim is the right to change a DLQ.
type claim struct {
	d      *deadQueue
	holder deadletter.Holder
}

// hold calls do while the claim is held.
func (c *claim) hold(do func(q *queue)) error {
	q := c.d.q
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	if q.graves.claim != c || c.d.closed {
		return fmt.Errorf("%w: %s", deadletter.ErrLost, q.dlq())
	}
	do(q)
	return nil
}

// Scan implements [deadletter.Claim].
func (c *claim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	return c.d.Scan(ctx, from)
}

// Send implements [deadletter.Claim].
func (c *claim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.write(ctx, msgs, func(q *queue, m *deadletter.Message) error {
		if err := q.refuses(Waits); err != nil {
			return err
		}
		st := deadletter.NewState(m, c.d.Info())
		q.wait(0, recordFrom(m, m.Headers).with(&st), nil, -1)
		return nil
	})
}

// Add implements [deadletter.Claim].
func (c *claim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.write(ctx, msgs, func(q *queue, m *deadletter.Message) error {
		if err := q.refuses(DLQ); err != nil {
			return err
		}
		rec := recordFrom(m, slices.Concat(m.Headers, m.Foreign))
		if m.Filler == deadletter.FilledByRedeliver {
			rec = rec.with(&m.State)
		}
		q.bury(rec)
		return nil
	})
}

func (c *claim) write(ctx context.Context, msgs []*deadletter.Message, one func(*queue, *deadletter.Message) error) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] != nil {
			continue
		}
		if lost := c.hold(func(q *queue) { errs[i] = one(q, m) }); lost != nil {
			errs[i] = lost
		}
	}
	return errs
}

// Settle implements [deadletter.Claim].
func (c *claim) Settle(_ context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	return c.hold(func(q *queue) {
		for _, s := range done {
			n, _ := s.Message.Native.(int64) // of a scan of this claim
			i, found := slices.BinarySearchFunc(q.dead, n, func(c corpse, n int64) int { return int(c.n - n) })
			switch {
			case !found:
			case s.Outcome.Out():
				q.dead = slices.Delete(q.dead, i, i+1)
			default:
				q.dead[i].mark = s.Outcome
			}
		}
		q.graves.save(t)
		q.b.change()
	})
}

// Save implements [deadletter.Claim].
func (c *claim) Save(_ context.Context, t deadletter.Task) error {
	return c.hold(func(q *queue) { q.graves.save(t) })
}

func (g *graves) save(t deadletter.Task) {
	i := slices.IndexFunc(g.tasks, func(was deadletter.Task) bool { return was.ID == t.ID })
	if i < 0 {
		g.tasks = append(g.tasks, t)
		return
	}
	g.tasks[i] = t
}

// Wanted implements [deadletter.Claim].
func (c *claim) Wanted(_ context.Context, task string) (w deadletter.Wanted, err error) {
	err = c.hold(func(q *queue) { w = q.graves.wanted[task] })
	return w, err
}

// Release implements [deadletter.Claim].
func (c *claim) Release(context.Context) error {
	c.d.q.b.mu.Lock()
	defer c.d.q.b.mu.Unlock()
	if c.d.q.graves.claim == c {
		c.d.q.graves.claim = nil
	}
	return nil
}
