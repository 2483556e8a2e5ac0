package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// maxTasks bounds the ended tasks in the history.
const maxTasks = 100

// driverClaim is a [Claim] over a session that holds the lock of the DLQ's runner.
type driverClaim struct {
	q           *driverQueue
	s           session
	holder      Holder
	hasReadLock bool
}

// Claim implements [Queue].
func (q *driverQueue) Claim(ctx context.Context, h Holder) (Claim, error) {
	s, err := q.connect(ctx)
	if err != nil {
		return nil, err
	}
	h.Since = now()
	if err := s.Lock(ctx, driver.ClaimLock, h); err != nil {
		return nil, errors.Join(err, finish(ctx, s.Close))
	}
	return &driverClaim{q: q, s: s, holder: h}, nil
}

// Scan implements [Claim].
func (c *driverClaim) Scan(ctx context.Context, from From) (Scan, error) {
	s, err := c.q.openScan(ctx, c.s, c.holder, from, c.hasReadLock)
	if err != nil {
		return nil, err
	}
	c.hasReadLock = true
	return s, nil
}

// locate returns a scan of the messages at positions. If the driver can, it does not read them.
func (c *driverClaim) locate(ctx context.Context, at []Position) (Scan, error) {
	l, ok := c.s.Session.(driver.Locator)
	if !ok {
		return c.Scan(ctx, Start)
	}
	msgs, err := l.Locate(ctx, at)
	return &listScan{msgs}, c.s.explain(err)
}

// listScan is a [Scan] of messages that were not read.
type listScan struct{ rest []*Message }

// Next implements [Scan].
func (s *listScan) Next(ctx context.Context, want func(*Message) bool) (*Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(s.rest) == 0 {
		return nil, io.EOF
	}
	m := s.rest[0]
	s.rest = s.rest[1:]
	if want != nil && !want(m) {
		return nil, nil //nolint:nilnil // as the interface defines it
	}
	return m, nil
}

// Close implements [Scan].
func (*listScan) Close() error { return nil }

// Send implements [Claim].
func (c *driverClaim) Send(ctx context.Context, msgs []*Message) []error {
	return c.s.Write(ctx, driver.ToGroup, msgs)
}

// Add implements [Claim].
func (c *driverClaim) Add(ctx context.Context, msgs []*Message) []error {
	return c.s.Write(ctx, driver.ToDLQ, msgs)
}

// Settle implements [Claim].
func (c *driverClaim) Settle(ctx context.Context, t Task, done []Settlement) error {
	var out []*Message
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			out = append(out, s.Message)
		}
	}
	return c.record(ctx, out, []driver.Entry{entryOf(taskPrefix+t.ID, t)})
}

// record writes entries and removes messages. If the state is full, it removes the oldest ended tasks.
func (c *driverClaim) record(ctx context.Context, out []*Message, entries []driver.Entry) error {
	err := c.s.Remove(ctx, out, entries...)
	for keep := maxTasks / 2; errors.Is(err, ErrStateFull); keep /= 2 {
		old, failed := c.oldTasks(ctx, keep)
		if failed != nil {
			return failed
		}
		if len(old) > 0 {
			err = c.s.Remove(ctx, out, append(old, entries...)...)
		}
		if keep == 0 {
			break
		}
	}
	return err
}

// oldTasks returns entries that delete the ended tasks, except those among the latest keep tasks.
func (c *driverClaim) oldTasks(ctx context.Context, keep int) (entries []driver.Entry, err error) {
	state, err := c.q.Load(ctx)
	if err != nil {
		return nil, err
	}
	all := tasksIn(state)
	for i := range max(0, len(all)-keep) {
		// The process of an edit or import that is recorded as running has died.
		if t := &all[i]; t.ID != c.holder.Task && (!t.Unfinished() || t.Kind.whyNotResumable() != "") {
			entries = append(entries, driver.Entry{Key: taskPrefix + t.ID}, driver.Entry{Key: requestPrefix + t.ID})
		}
	}
	return entries, nil
}

// Save implements [Claim].
func (c *driverClaim) Save(ctx context.Context, t Task) error {
	entries := []driver.Entry{entryOf(taskPrefix+t.ID, t)}
	if !t.Unfinished() { // once for each task
		old, err := c.oldTasks(ctx, maxTasks)
		if err != nil {
			return err
		}
		entries = append(old, entries...)
	}
	return c.record(ctx, nil, entries)
}

// Requested implements [Claim].
func (c *driverClaim) Requested(ctx context.Context, task string) (r Request, err error) {
	if err := c.s.Check(); err != nil {
		return "", err
	}
	state, err := c.q.Load(ctx)
	if err != nil || state[requestPrefix+task] == nil {
		return NoRequest, err
	}
	err = json.Unmarshal(state[requestPrefix+task], &r)
	return r, err
}

// Release implements [Claim].
func (c *driverClaim) Release(ctx context.Context) error { return c.s.Close(ctx) }
