package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

const (
	// MaxMarks is the largest number of messages that are marked as quarantined or refused on
	// RabbitMQ and SQS, where the state of a DLQ is one message.
	MaxMarks = 2000
	// maxTasks bounds the ended tasks in the history.
	maxTasks = 100
	// minMissing is how long a marked message must be missing before its mark is removed. SQS keeps no message longer.
	minMissing = 14 * 24 * time.Hour
	// maxMissing bounds the marked messages that are recorded as missing. The others are recorded later, when the marks of
	// these are removed.
	maxMissing = 200
)

// mark records why a message stays in the DLQ. If the DLQ is created again, another message may have the same position,
// but not the same Time.
type mark struct {
	Outcome      Outcome   `json:"outcome"`
	Time         int64     `json:"time"`            // of the message, in Unix milliseconds
	MissingSince time.Time `json:"missed,omitzero"` // when a complete scan first did not find the message
}

func marksIn(state driver.State) map[Position]mark {
	marks := make(map[Position]mark)
	for key, value := range state {
		var one mark
		if at, ok := strings.CutPrefix(key, markPrefix); ok && json.Unmarshal(value, &one) == nil {
			marks[Position(at)] = one
		}
	}
	return marks
}

// driverClaim is a [Claim] over a session that holds the lock of the DLQ's runner.
type driverClaim struct {
	q           *driverQueue
	s           session
	holder      Holder
	hasReadLock bool
	scan        *driverScan // the latest from Start
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
	if from == Start {
		c.scan = s
	}
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
	marks := map[Position]mark{}
	if c.scan != nil {
		marks = c.scan.marks
	}
	entries := []driver.Entry{entryOf(taskPrefix+t.ID, t)} // first, because it names the messages that are being settled
	var out []*Message
	added := 0
	for _, s := range done {
		key := markPrefix + string(s.Message.Position)
		switch {
		case !s.Outcome.LeavesDLQ():
			if marks[s.Message.Position].Outcome == "" {
				added++
			}
			entries = append(entries, entryOf(key, mark{Outcome: s.Outcome, Time: s.Message.Time.UnixMilli()}))
			continue
		case s.Message.Mark != "":
			entries = append(entries, driver.Entry{Key: key})
		}
		out = append(out, s.Message)
	}
	if c.q.hides() && added > 0 && len(marks)+added > MaxMarks {
		return fmt.Errorf("%w: marking messages in %s: %d have a mark, and %d more would be more than %d", ErrStateFull, c.q.Info().DLQ, len(marks), added, MaxMarks)
	}
	if err := c.record(ctx, out, entries); err != nil {
		return err
	}
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			delete(marks, s.Message.Position)
		} else {
			marks[s.Message.Position] = mark{Outcome: s.Outcome, Time: s.Message.Time.UnixMilli()}
		}
	}
	return nil
}

// record writes entries and removes messages. If the state is full, it removes the oldest ended tasks. It removes no marks,
// because a replay would then send the marked messages.
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

// DropMarks implements [Claim]. It removes the marks of messages that expired or that another program removed: those that
// no complete scan has found for 14 days. A scan may miss a message because another reader hides it.
func (c *driverClaim) DropMarks(ctx context.Context, found map[Position]bool) error {
	state, err := c.q.Load(ctx)
	if err != nil {
		return err
	}
	entries := missingMarks(marksIn(state), found, time.Now())
	if len(entries) == 0 {
		return nil
	}
	return c.record(ctx, nil, entries)
}

// missingMarks returns the entries that remove marks, or record since when their messages are missing. found has the marked messages
// that a complete scan has found.
func missingMarks(marks map[Position]mark, found map[Position]bool, now time.Time) (entries []driver.Entry) {
	missing := 0
	for at, m := range marks {
		if !m.MissingSince.IsZero() && !found[at] {
			missing++
		}
	}
	for at, m := range marks {
		key := markPrefix + string(at)
		switch {
		case found[at] && m.MissingSince.IsZero():
		case found[at]:
			m.MissingSince = time.Time{}
			entries = append(entries, entryOf(key, m))
		case m.MissingSince.IsZero() && missing < maxMissing:
			missing++
			m.MissingSince = now.UTC().Truncate(time.Second)
			entries = append(entries, entryOf(key, m))
		case !m.MissingSince.IsZero() && now.Sub(m.MissingSince) >= minMissing:
			entries = append(entries, driver.Entry{Key: key})
		}
	}
	return entries
}

// Release implements [Claim].
func (c *driverClaim) Release(ctx context.Context) error { return c.s.Close(ctx) }
