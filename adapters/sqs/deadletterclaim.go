package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// deadClaim is the right to change a DLQ: a lease. It implements deadletter.Claim.
//
// The arrows of a window, and what is so when the process dies there: before the
// send, nothing; after it, the window lies in the DLQ, hidden until its time is over,
// and in the queue, too; after the deletion, its messages are in the queue only, and
// the task's record, which comes last, counts one window too few.
type deadClaim struct {
	q *deadLetters
	l *lessee
}

// Claim implements [deadletter.Queue].
func (q *deadLetters) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	l, err := newLessee(q)
	if err != nil {
		return nil, err
	}
	var other *deadletter.Lease
	err = q.note(ctx, func(r *deadletter.Record) bool {
		now := time.Now()
		if r.Claim.Held(now) {
			other = r.Claim
			return false
		}
		other = nil
		l.desk.mu.Lock()
		defer l.desk.mu.Unlock()
		l.claims, l.good = true, now
		r.Claim = &deadletter.Lease{Token: l.token, Who: holder.Who, Task: holder.Task, Since: now.UTC(), Until: now.Add(2 * q.lease).UTC()}
		return true
	})
	if err == nil && other != nil {
		err = &deadletter.HeldError{DLQ: q.info.DLQ, Holder: other.Holder()}
	}
	if err != nil {
		l.end()
		return nil, err
	}
	return &deadClaim{q: q, l: l}, nil
}

// Scan implements [deadletter.Claim].
func (c *deadClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	if err := c.l.check(); err != nil {
		return nil, err
	}
	s, err := c.l.desk.scan(ctx, from)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Send implements [deadletter.Claim].
func (c *deadClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	errs := c.write(ctx, c.q.main, msgs, func(m *deadletter.Message) (outgoing, error) {
		st := deadletter.NewState(m, c.q.info)
		rec := recordOfDead(m, m.Headers)
		rec.keys = c.q.c.cfg.StateKeys
		o, ok := rec.waiting(&st, c.q.main.limit)
		if !ok {
			return o, fmt.Errorf("%w: its body and attributes leave no room for redeliver's state in the %d bytes of %s", delayqueue.ErrRefused, c.q.main.limit, c.q.main.name)
		}
		if c.q.main.fifo {
			o.dedup = unique("replay", rec, &st)
		}
		return o, nil
	})
	c.remember(msgs, errs)
	return errs
}

// remember notes what was replayed just after a scan began: when it comes back it
// might be taken for what lay there.
func (c *deadClaim) remember(msgs []*deadletter.Message, errs []error) {
	d := c.l.desk
	if !slices.ContainsFunc(d.scans, func(s *deadScan) bool { return time.Since(s.start) < justAfter }) {
		return
	}
	if d.sent == nil {
		d.sent = make(map[string]bool)
	}
	for i, m := range msgs {
		if errs[i] == nil {
			d.sent[m.ID] = true
		}
	}
}

// Add implements [deadletter.Claim]. What SQS itself said of a message cannot be
// written again: it is in redeliver's state then.
func (c *deadClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.write(ctx, c.q.dlq, msgs, func(m *deadletter.Message) (outgoing, error) {
		if m.Filler != deadletter.FilledByRedeliver && m.Filler != deadletter.FilledBySQS {
			rec := recordOfDead(m, slices.Concat(m.Headers, m.Foreign))
			o := rec.plain()
			o.dedup = unique("import", rec, &redeliver.State{ID: m.ID})
			return o, nil
		}
		rec := recordOfDead(m, m.Headers)
		rec.keys = c.q.c.cfg.StateKeys
		o := rec.dead(&m.State, c.q.dlq.limit)
		o.dedup = unique("import", rec, &m.State)
		return o, nil
	})
}

// write sends messages to a queue; to a FIFO queue one request after another.
func (c *deadClaim) write(ctx context.Context, q *queue, msgs []*deadletter.Message, compose func(*deadletter.Message) (outgoing, error)) []error {
	errs := make([]error, len(msgs))
	if err := c.l.check(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	timeout := c.q.c.cfg.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	s := c.q.c.sender(q, publishLinger)
	var all []*sending
	var of []int
	for i, m := range msgs {
		o, err := compose(m)
		if err != nil {
			errs[i] = err
			continue
		}
		o.moved = true
		if !q.fifo {
			o.dedup = ""
			if !isGroupID(o.group) { // an import has another broker's key there
				o.group = ""
			}
		}
		all, of = append(all, &sending{outgoing: o, ctx: ctx, done: make(chan error, 1)}), append(of, i)
	}
	for i, err := range s.sendAll(all) {
		errs[of[i]] = err
	}
	return errs
}

// isGroupID reports whether SQS takes id as a MessageGroupId. On a standard queue it names a tenant of a fair queue.
func isGroupID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Forget implements [deadletter.Forgetter].
func (c *deadClaim) Forget(ctx context.Context, met map[deadletter.Position]bool) error {
	if len(c.l.desk.marks) == 0 {
		return nil
	}
	return c.note(ctx, func(r *deadletter.Record) { r.Forget(met, time.Now()) })
}

// Settle implements [deadletter.Claim].
func (c *deadClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if err := c.l.check(); err != nil {
		return err
	}
	var out []string
	marks := make(map[deadletter.Position]deadletter.Outcome)
	for _, s := range done {
		at, ok := s.Message.Native.(*corpse)
		if !ok {
			return fmt.Errorf("sqs: message %s at %s was read by another adapter (%T)", s.Message.ID, s.Message.Position, s.Message.Native)
		}
		if !s.Outcome.Out() {
			marks[s.Message.Position] = s.Outcome
			continue
		}
		out = append(out, at.rec.current)
		if s.Message.Mark != "" {
			marks[s.Message.Position] = ""
		}
	}
	if err := c.l.desk.remove(ctx, out); err != nil {
		return err
	}
	var full error
	known := c.l.desk.marks
	err := c.note(ctx, func(r *deadletter.Record) {
		if full = r.Mark(marks); full != nil {
			return
		}
		r.Put(t)
		known = r.Marks
	})
	if err == nil {
		c.l.desk.marks = known
		err = full
	} else if len(out) == 0 && errors.Is(err, errTooMuch) {
		err = fmt.Errorf("%w: %w", deadletter.ErrFull, err)
	}
	if errors.Is(err, deadletter.ErrFull) {
		return fmt.Errorf("sqs: marking in %s: %w", c.q.info.DLQ, err)
	}
	return err
}

// note changes the state, and renews the claim by that.
func (c *deadClaim) note(ctx context.Context, change func(*deadletter.Record)) error {
	began, lost := time.Now(), false
	until := began.Add(c.l.last()).UTC()
	err := c.q.note(ctx, func(r *deadletter.Record) bool {
		if !c.l.extend(r, until, &lost) {
			return false
		}
		change(r)
		return true
	})
	c.l.desk.mu.Lock()
	defer c.l.desk.mu.Unlock()
	if err == nil && lost {
		c.l.lost = fmt.Errorf("%w: another has %s now", deadletter.ErrLost, c.q.info.DLQ)
		return c.l.lost
	}
	if err == nil {
		c.l.good = began
	}
	return err
}

// Save implements [deadletter.Claim].
func (c *deadClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := c.l.check(); err != nil {
		return err
	}
	return c.note(ctx, func(r *deadletter.Record) { r.Put(t) })
}

// Wanted implements [deadletter.Claim].
func (c *deadClaim) Wanted(ctx context.Context, task string) (deadletter.Wanted, error) {
	if err := c.l.check(); err != nil {
		return "", err
	}
	r, err := c.q.record(ctx)
	return r.Wants[task].Wanted, err
}

// Release implements [deadletter.Claim].
func (c *deadClaim) Release(ctx context.Context) error {
	c.l.end()
	return c.q.note(ctx, func(r *deadletter.Record) bool {
		if r.Claim == nil || r.Claim.Token != c.l.token {
			return false
		}
		r.Claim = nil
		return true
	})
}
