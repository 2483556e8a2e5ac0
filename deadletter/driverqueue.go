package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
)

// Prefixes of state keys. The id of a task or the position of a message follows.
const (
	taskPrefix    = "task/"
	requestPrefix = "want/"
)

// New returns a queue over an adapter's driver. Adapters call it.
func New(d driver.DLQ) Queue { return &driverQueue{d} }

// WithDriver returns a queue like q with the driver that wrap returns for q's driver. It is for tests that count the calls of a
// driver, or make them fail. q is a queue of New, or has a method Unwrap() Queue that returns one. Others are returned unchanged.
func WithDriver(q Queue, wrap func(driver.DLQ) driver.DLQ) Queue {
	switch q := q.(type) {
	case *driverQueue:
		return &driverQueue{wrap(q.DLQ)}
	case interface{ Unwrap() Queue }:
		return WithDriver(q.Unwrap(), wrap)
	default:
		return q
	}
}

// driverQueue is a [Queue] over the driver of its broker. Its claims are driverClaims, and its scans are driverScans.
type driverQueue struct{ driver.DLQ }

// Tasks implements [Queue].
func (q *driverQueue) Tasks(ctx context.Context) ([]Task, error) {
	state, err := q.Load(ctx)
	if err != nil {
		return nil, err
	}
	return tasksIn(state), nil
}

// tasksIn returns the tasks of a state, the oldest first. It skips unreadable values.
func tasksIn(state driver.State) (all []Task) {
	for key, value := range state {
		var t Task
		if id, ok := strings.CutPrefix(key, taskPrefix); ok && json.Unmarshal(value, &t) == nil && t.ID == id {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y Task) int { return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID)) })
	return all
}

// Request implements [Queue].
func (q *driverQueue) Request(ctx context.Context, task string, r Request) error {
	e := driver.Entry{Key: requestPrefix + task}
	if r != RequestNone {
		e = entryOf(e.Key, r)
	}
	return q.Append(ctx, e)
}

// entryOf returns an entry with the JSON of value, which must be plain data.
func entryOf(key string, value any) driver.Entry {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = nil
	}
	return driver.Entry{Key: key, Value: raw}
}

// Holder implements [Queue].
func (q *driverQueue) Holder(ctx context.Context) (Holder, bool, error) {
	return q.LockHolder(ctx, driver.ClaimLock)
}

// hides reports whether reading hides messages from others.
func (q *driverQueue) hides() bool { return q.Info().ReadEffect != NoReadEffect }

// session is a [driver.Session] that checks its locks before it acts.
type session struct{ driver.Session }

func (q *driverQueue) connect(ctx context.Context) (session, error) {
	s, err := q.Connect(ctx)
	return session{s}, err
}

// explain adds the loss of a lock to err, because err may be its effect.
func (s session) explain(err error) error {
	if err != nil {
		if lost := s.Check(); lost != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, ErrBlocked) {
				return lost // others may have the rest
			}
			return fmt.Errorf("%w: %w", lost, err)
		}
	}
	return err
}

// Open implements [driver.Session].
func (s session) Open(ctx context.Context, from From) (driver.Reader, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	r, err := s.Session.Open(ctx, from)
	return r, s.explain(err)
}

// Write implements [driver.Session].
func (s session) Write(ctx context.Context, to driver.Destination, msgs []*Message) (errs []error) {
	if err := s.Check(); err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	return s.Session.Write(ctx, to, msgs)
}

// Remove implements [driver.Session].
func (s session) Remove(ctx context.Context, msgs []*Message, entries ...driver.Entry) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.explain(s.Session.Remove(ctx, msgs, entries...))
}

// Scan implements [Queue]. The scan has its own session.
func (q *driverQueue) Scan(ctx context.Context, from From) (Scan, error) {
	s, err := q.connect(ctx)
	if err != nil {
		return nil, err
	}
	scan, err := q.openScan(ctx, s, Holder{Who: "a reader", Task: "none"}, from, false)
	if err != nil {
		return nil, errors.Join(err, finish(ctx, s.Close))
	}
	scan.own = true
	return scan, nil
}

// openScan opens a scan of a session. If reading hides messages, it first takes the read lock, unless hasLock says that the
// session or its claim has it.
func (q *driverQueue) openScan(ctx context.Context, s session, h Holder, from From, hasLock bool) (*driverScan, error) {
	if q.hides() && !hasLock {
		if err := q.takeReadLock(ctx, s, h); err != nil {
			return nil, err
		}
	}
	r, err := s.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return &driverScan{s: s, r: r}, nil
}

// readLockInterval is the interval at which a session tries again to take the read lock.
const readLockInterval = 200 * time.Millisecond

// takeReadLock takes the read lock. It waits while another session has the lock, but returns a HeldError if the runner of
// another task is alive. A dead runner may still have a lease, but does not renew it.
func (q *driverQueue) takeReadLock(ctx context.Context, s session, h Holder) error {
	var first *Holder // the runner of another task when it was first found
	for {
		err := s.Lock(ctx, driver.ReadLock, h)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		runner, ok, err := q.LockHolder(ctx, driver.ClaimLock)
		if err != nil {
			return err
		}
		if ok && runner.Task != h.Task {
			if first == nil {
				first = &runner
			}
			if runner.Until.IsZero() || runner.Until.After(first.Until) {
				return &HeldError{DLQ: q.Info().DLQ, Holder: runner}
			}
		}
		if err := wait.For(ctx, readLockInterval); err != nil {
			return fmt.Errorf("waiting until nobody else reads %s: %w", q.Info().DLQ, err)
		}
	}
}

// driverScan is a [Scan] over the reader of a session.
type driverScan struct {
	s      session
	own    bool // Close closes the session, which is not a claim's
	r      driver.Reader
	closed bool
}

// Next implements [Scan].
func (s *driverScan) Next(ctx context.Context, want func(*Message) bool) (*Message, error) {
	if err := cmp.Or(ctx.Err(), s.s.Check()); err != nil {
		return nil, err
	}
	if want == nil {
		want = func(*Message) bool { return true }
	}
	m, err := s.r.Next(ctx, want)
	return m, s.s.explain(err)
}

// Close implements [Scan].
func (s *driverScan) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), maxFinish)
	defer cancel()
	err := s.r.Close(ctx)
	if s.own {
		err = errors.Join(err, s.s.Close(ctx))
	}
	return err
}
