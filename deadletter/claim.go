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
	// minMissed is how long a marked message must be missing before its mark is removed. SQS keeps no message longer.
	minMissed = 14 * 24 * time.Hour
	// maxMissed bounds the marked messages that are recorded as missing. The others are recorded later, when the marks of
	// these are removed.
	maxMissed = 200
)

// mark records why a message stays in the DLQ. If the DLQ is created again, another message may have the same position,
// but not the same Time.
type mark struct {
	Outcome Outcome   `json:"outcome"`
	Time    int64     `json:"time"`            // of the message, in Unix milliseconds
	Missed  time.Time `json:"missed,omitzero"` // when a complete scan first did not find the message
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

// driverClaim is the right to change a DLQ: a session that holds the lock.
type driverClaim struct {
	q       *driverQueue
	s       driver.Session
	holder  Holder
	looking bool // the session has the read lock
	scan    *driverScan
}

// Claim implements [Queue].
func (q *driverQueue) Claim(ctx context.Context, h Holder) (Claim, error) {
	s, err := q.Connect(ctx)
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
	s, err := c.q.look(ctx, c.s, c.holder, from, c.looking)
	if err != nil {
		return nil, err
	}
	c.looking = true
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
	fresh := 0
	for _, s := range done {
		key := markPrefix + string(s.Message.Position)
		switch {
		case !s.Outcome.LeavesDLQ():
			if marks[s.Message.Position].Outcome == "" {
				fresh++
			}
			entries = append(entries, entryOf(key, mark{Outcome: s.Outcome, Time: s.Message.Time.UnixMilli()}))
			continue
		case s.Message.Mark != "":
			entries = append(entries, driver.Entry{Key: key})
		}
		out = append(out, s.Message)
	}
	if c.q.hides() && fresh > 0 && len(marks)+fresh > MaxMarks {
		return fmt.Errorf("%w: marking in %s: %d messages have a mark, and %d more would be more than %d", ErrStateFull, c.q.Info().DLQ, len(marks), fresh, MaxMarks)
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
		if t := &all[i]; t.ID != c.holder.Task && (!t.Unfinished() || t.Kind.fixed() != "") {
			entries = append(entries, driver.Entry{Key: taskPrefix + t.ID}, driver.Entry{Key: wantPrefix + t.ID})
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
func (c *driverClaim) Requested(ctx context.Context, task string) (w Request, err error) {
	if err := c.s.Remove(ctx, nil); err != nil { // returns an error if the claim is lost
		return "", err
	}
	state, err := c.q.Load(ctx)
	if err != nil || state[wantPrefix+task] == nil {
		return NoRequest, err
	}
	err = json.Unmarshal(state[wantPrefix+task], &w)
	return w, err
}

// DropMarks implements [Claim]. It removes the marks of messages that expired or that another program removed: those that
// no complete scan has found for 14 days. A scan may miss a message because another reader hides it.
func (c *driverClaim) DropMarks(ctx context.Context, met map[Position]bool) error {
	state, err := c.q.Load(ctx)
	if err != nil {
		return err
	}
	entries := forget(marksIn(state), met, time.Now())
	if len(entries) == 0 {
		return nil
	}
	return c.record(ctx, nil, entries)
}

// forget returns the entries that remove marks or record their messages as missing. met has the marked messages that a complete
// scan has found.
func forget(marks map[Position]mark, met map[Position]bool, now time.Time) (entries []driver.Entry) {
	missed := 0
	for at, m := range marks {
		if !m.Missed.IsZero() && !met[at] {
			missed++
		}
	}
	for at, m := range marks {
		key := markPrefix + string(at)
		switch {
		case met[at] && m.Missed.IsZero():
		case met[at]:
			m.Missed = time.Time{}
			entries = append(entries, entryOf(key, m))
		case m.Missed.IsZero() && missed < maxMissed:
			missed++
			m.Missed = now.UTC().Truncate(time.Second)
			entries = append(entries, entryOf(key, m))
		case !m.Missed.IsZero() && now.Sub(m.Missed) >= minMissed:
			entries = append(entries, driver.Entry{Key: key})
		}
	}
	return entries
}

// Release implements [Claim].
func (c *driverClaim) Release(ctx context.Context) error { return c.s.Close(ctx) }
