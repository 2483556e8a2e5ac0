package driver

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// maxTasks bounds the ended tasks in the history.
const maxTasks = 100

// driverClaim is a [deadletter.Claim] over a session that holds the lock of the DLQ's runner.
type driverClaim struct {
	q           *driverQueue
	s           checkedSession
	holder      deadletter.Holder
	hasReadLock bool
}

// Claim implements [deadletter.Queue].
func (q *driverQueue) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	s, err := q.connect(ctx)
	if err != nil {
		return nil, err
	}
	h.Since = time.Now().UTC().Truncate(time.Millisecond)
	if err := s.Lock(ctx, ClaimLock, h); err != nil {
		return nil, errors.Join(err, finish(ctx, s.Close))
	}
	return &driverClaim{q: q, s: s, holder: h}, nil
}

// Scan implements [deadletter.Claim].
func (c *driverClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := c.q.openScan(ctx, c.s, c.holder, from, c.hasReadLock)
	if err != nil {
		return nil, err
	}
	c.hasReadLock = true
	return s, nil
}

// Rescan implements [deadletter.Rescanner], with a session of its own, because the claim's does not see new messages.
func (c *driverClaim) Rescan(ctx context.Context) (deadletter.Scan, error) {
	s, err := c.q.connect(ctx)
	if err != nil {
		return nil, err
	}
	scan, err := c.q.openScan(ctx, s, c.holder, deadletter.FromStart, true)
	if err != nil {
		return nil, errors.Join(err, finish(ctx, s.Close))
	}
	scan.own = true
	return scan, nil
}

// Locate implements [deadletter.Locator].
func (c *driverClaim) Locate(ctx context.Context, at []deadletter.Position) (deadletter.Located, error) {
	return c.s.Locate(ctx, at)
}

// Send implements [deadletter.Claim].
func (c *driverClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.s.Write(ctx, DestinationGroup, msgs)
}

// Add implements [deadletter.Claim].
func (c *driverClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	return c.s.Write(ctx, DestinationDLQ, msgs)
}

// Settle implements [deadletter.Claim].
func (c *driverClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	var out []*deadletter.Message
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			out = append(out, s.Message)
		}
	}
	return c.record(ctx, out, []Entry{entryOf(taskPrefix+t.ID, t)})
}

// record writes entries and removes messages. If the state is full, it removes the oldest ended tasks.
func (c *driverClaim) record(ctx context.Context, out []*deadletter.Message, entries []Entry) error {
	err := c.s.Remove(ctx, out, entries...)
	for keep := maxTasks / 2; errors.Is(err, deadletter.ErrStateFull); keep /= 2 {
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
func (c *driverClaim) oldTasks(ctx context.Context, keep int) (entries []Entry, err error) {
	state, err := c.q.Load(ctx)
	if err != nil {
		return nil, err
	}
	all := tasksIn(state)
	for i := range max(0, len(all)-keep) {
		// The process of an edit or import that is recorded as running has died.
		if t := &all[i]; t.ID != c.holder.Task && (!t.Unfinished() || t.Kind == deadletter.KindEdit || t.Kind == deadletter.KindImport) {
			entries = append(entries, Entry{Key: taskPrefix + t.ID}, Entry{Key: requestPrefix + t.ID})
		}
	}
	return entries, nil
}

// Save implements [deadletter.Claim].
func (c *driverClaim) Save(ctx context.Context, t deadletter.Task) error {
	entries := []Entry{entryOf(taskPrefix+t.ID, t)}
	if !t.Unfinished() { // once for each task
		old, err := c.oldTasks(ctx, maxTasks)
		if err != nil {
			return err
		}
		entries = append(old, entries...)
	}
	return c.record(ctx, nil, entries)
}

// Requested implements [deadletter.Claim].
func (c *driverClaim) Requested(ctx context.Context, task string) (r deadletter.Request, err error) {
	if err := c.s.Check(); err != nil {
		return "", err
	}
	state, err := c.q.Load(ctx)
	if err != nil || state[requestPrefix+task] == nil {
		return deadletter.RequestNone, err
	}
	err = json.Unmarshal(state[requestPrefix+task], &r)
	return r, err
}

// Release implements [deadletter.Claim].
func (c *driverClaim) Release(ctx context.Context) error { return c.s.Close(ctx) }
