package deadletter

import (
	"context"
	"encoding/json"
	"errors"

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
		return RequestNone, err
	}
	err = json.Unmarshal(state[requestPrefix+task], &r)
	return r, err
}

// Release implements [Claim].
func (c *driverClaim) Release(ctx context.Context) error { return c.s.Close(ctx) }
