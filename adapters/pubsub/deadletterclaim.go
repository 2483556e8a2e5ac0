package pubsub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// deadClaim is the right to change a DLQ: a lock, which ends with its process. It
// implements deadletter.Claim.
//
// The arrows of a window, and what is so when the process dies there: before the send,
// nothing; after it, the window lies in the DLQ and on the way back, and is sent again;
// after it is settled, it is on the way back only, and the task's record, which comes
// last, counts one window too few.
type deadClaim struct {
	q       *deadLetters
	held    *os.File       // claim.lock
	touched map[int64]bool // files in which something was settled
}

// Claim implements [deadletter.Queue].
func (q *deadLetters) Claim(ctx context.Context, holder deadletter.Holder) (claim deadletter.Claim, err error) {
	err = q.alone(ctx, func() error {
		held, err := tryLock(q.path(claimLock))
		if err != nil {
			return err
		}
		if held == nil {
			st, err := q.state()
			if err != nil {
				return err
			}
			return &deadletter.HeldError{DLQ: q.info.DLQ, Holder: st.Claim.Holder()}
		}
		err = q.change(func(st *shelfState) error {
			st.Claim = &deadletter.Lease{Who: holder.Who, Task: holder.Task, Since: time.Now().UTC()}
			return nil
		})
		if err == nil {
			claim, err = q.claimed(held)
		}
		if err != nil {
			return errors.Join(err, held.Close())
		}
		return nil
	})
	return claim, err
}

// claimed remembers a claim for Close, or fails after it.
func (q *deadLetters) claimed(held *os.File) (*deadClaim, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	c := &deadClaim{q: q, held: held, touched: make(map[int64]bool)}
	if q.claims == nil {
		q.claims = make(map[*deadClaim]bool)
	}
	q.claims[c] = true
	return c, nil
}

// check is the error of a claim that has ended.
func (c *deadClaim) check() error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.q.claims[c] {
		return fmt.Errorf("%w: %s was closed, or the claim released", deadletter.ErrLost, c.q.info.DLQ)
	}
	return nil
}

// Scan implements [deadletter.Claim].
func (c *deadClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.q.Scan(ctx, from)
}

// Send implements [deadletter.Claim].
func (c *deadClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.write(ctx, c.q.layout.back, msgs, func(m *deadletter.Message) ([]deadletter.Header, *redeliver.State) {
		st := deadletter.NewState(m, c.q.info)
		return m.Headers, &st
	})
}

// Add implements [deadletter.Claim]: it publishes to the DLQ's topic, from which letters
// are taken.
func (c *deadClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.write(ctx, c.q.info.DLQ, msgs, func(m *deadletter.Message) ([]deadletter.Header, *redeliver.State) {
		if m.Filler == deadletter.FilledByRedeliver {
			return m.Headers, &m.State
		}
		return slices.Concat(m.Headers, m.Foreign), nil
	})
}

// write publishes one after another.
func (c *deadClaim) write(ctx context.Context, topic string, msgs []*deadletter.Message, parts func(*deadletter.Message) ([]deadletter.Header, *redeliver.State)) []error {
	errs := make([]error, len(msgs))
	f := &forwarder{cfg: &c.q.c.cfg, layout: c.q.layout}
	for i, m := range msgs {
		if errs[i] = c.check(); errs[i] != nil {
			continue
		}
		headers, st := parts(m)
		rec, err := recordOfDead(m, headers)
		if err == nil {
			var with *carried
			if st != nil {
				with = &carried{headers: st.AppendHeaders(nil)}
			}
			timeout := c.q.c.cfg.SendTimeout
			one, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
			err = f.write(one, topic, rec, with)
			cancel()
		}
		errs[i] = err
	}
	return errs
}

// Settle implements [deadletter.Claim]. What is out is written down before the task is.
func (c *deadClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if err := c.check(); err != nil {
		return err
	}
	out := make(map[int64]spans)
	marks := make(map[deadletter.Position]deadletter.Outcome)
	for _, s := range done {
		p, ok := s.Message.Native.(deadPlace)
		if !ok {
			return fmt.Errorf("pubsub: message %s at %s was read by another adapter (%T)", s.Message.ID, s.Message.Position, s.Message.Native)
		}
		if !s.Outcome.Out() {
			marks[s.Message.Position] = s.Outcome
			continue
		}
		out[p.base] = out[p.base].with(span{p.n, p.n})
		marks[s.Message.Position] = ""
	}
	for base, all := range out {
		if err := c.q.settle(base, all); err != nil {
			return err
		}
		c.touched[base] = true
	}
	return c.q.note(ctx, func(st *shelfState) error {
		if err := st.Mark(marks); err != nil {
			return fmt.Errorf("pubsub: the state of %s: %w", c.q.info.DLQ, err)
		}
		st.Put(t)
		return nil
	})
}

// Save implements [deadletter.Claim].
func (c *deadClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.q.note(ctx, func(st *shelfState) error {
		st.Put(t)
		return nil
	})
}

// Wanted implements [deadletter.Claim].
func (c *deadClaim) Wanted(_ context.Context, task string) (deadletter.Wanted, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	st, err := c.q.state()
	return st.Wants[task].Wanted, err
}

// Release implements [deadletter.Claim]. It gives back the room of what is settled first.
func (c *deadClaim) Release(ctx context.Context) error {
	if err := c.check(); err != nil {
		return nil //nolint:nilerr // it has ended already
	}
	err := c.shrink()
	err = errors.Join(err, c.q.note(ctx, func(st *shelfState) error {
		st.Claim = nil
		return nil
	}))
	c.q.mu.Lock()
	delete(c.q.claims, c)
	c.q.mu.Unlock()
	return errors.Join(err, c.held.Close())
}

// shrink makes the files smaller in which something was settled, here or by who died
// before, but for the last, which grows.
func (c *deadClaim) shrink() error {
	bases, err := c.q.bases()
	if err != nil {
		return err
	}
	for i, base := range bases[:max(0, len(bases)-1)] {
		if err := c.q.shelf.shrink(base, bases[i+1], c.touched[base]); err != nil {
			return err
		}
	}
	return nil
}
