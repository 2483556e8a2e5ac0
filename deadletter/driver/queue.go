package driver

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

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wait"
)

// Prefixes of state keys. The id of a task or the position of a message follows.
const (
	taskPrefix    = "task/"
	requestPrefix = "want/"
)

// New returns a queue over an adapter's driver. Adapters call it.
func New(d DLQ) deadletter.Queue { return &driverQueue{d} }

// Wrap returns a queue like q with the driver that wrap returns for q's driver, for tests that count the calls of a
// driver, or make them fail. q is a queue of New, or has a method Unwrap() Queue that returns one. Others are returned unchanged.
func Wrap(q deadletter.Queue, wrap func(DLQ) DLQ) deadletter.Queue {
	switch q := q.(type) {
	case *driverQueue:
		return &driverQueue{wrap(q.DLQ)}
	case interface{ Unwrap() deadletter.Queue }:
		return Wrap(q.Unwrap(), wrap)
	default:
		return q
	}
}

// driverQueue is a [deadletter.Queue] over the driver of its broker. Its claims are driverClaims, and its scans are driverScans.
type driverQueue struct{ DLQ }

// Tasks implements [deadletter.Queue].
func (q *driverQueue) Tasks(ctx context.Context) ([]deadletter.Task, error) {
	state, err := q.Load(ctx)
	if err != nil {
		return nil, err
	}
	return tasksIn(state), nil
}

// tasksIn returns the tasks of a state, the oldest first. It skips unreadable values.
func tasksIn(state State) (all []deadletter.Task) {
	for key, value := range state {
		var t deadletter.Task
		if id, ok := strings.CutPrefix(key, taskPrefix); ok && json.Unmarshal(value, &t) == nil && t.ID == id {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y deadletter.Task) int { return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID)) })
	return all
}

// Request implements [deadletter.Queue].
func (q *driverQueue) Request(ctx context.Context, task string, r deadletter.Request) error {
	e := Entry{Key: requestPrefix + task}
	if r != deadletter.RequestNone {
		e = entryOf(e.Key, r)
	}
	return q.Append(ctx, e)
}

// entryOf returns an entry with the JSON of value, which must be plain data.
func entryOf(key string, value any) Entry {
	raw, err := json.Marshal(value)
	if err != nil {
		raw = nil
	}
	return Entry{Key: key, Value: raw}
}

// Holder implements [deadletter.Queue].
func (q *driverQueue) Holder(ctx context.Context) (deadletter.Holder, bool, error) {
	return q.LockHolder(ctx, ClaimLock)
}

// Uncounted implements [deadletter.Uncounter]: it returns 0 if the driver counts all messages.
func (q *driverQueue) Uncounted(ctx context.Context) (consumers int, err error) {
	if u, ok := q.DLQ.(deadletter.Uncounter); ok {
		return u.Uncounted(ctx)
	}
	return 0, nil
}

// hides reports whether reading hides messages from others.
func (q *driverQueue) hides() bool { return q.Info().ReadEffect != deadletter.NoReadEffect }

// checkedSession is a [Session] that checks its locks before it acts.
type checkedSession struct{ Session }

func (q *driverQueue) connect(ctx context.Context) (checkedSession, error) {
	s, err := q.Connect(ctx)
	return checkedSession{s}, err
}

// explain adds the loss of a lock to err, because err may be its effect.
func (s checkedSession) explain(err error) error {
	if err != nil {
		if lost := s.Check(); lost != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, deadletter.ErrBlocked) {
				return lost // others may have the rest
			}
			return fmt.Errorf("%w: %w", lost, err)
		}
	}
	return err
}

// Open implements [Session].
func (s checkedSession) Open(ctx context.Context, from deadletter.From) (Reader, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	r, err := s.Session.Open(ctx, from)
	return r, s.explain(err)
}

// Locate implements [deadletter.Locator]: it finds none if the driver cannot.
func (s checkedSession) Locate(ctx context.Context, at []deadletter.Position) (found deadletter.Located, err error) {
	if l, ok := s.Session.(deadletter.Locator); ok {
		found, err = l.Locate(ctx, at)
	}
	return found, s.explain(err)
}

// Write implements [Session].
func (s checkedSession) Write(ctx context.Context, to Destination, msgs []*deadletter.Message) (errs []error) {
	if err := s.Check(); err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	return s.Session.Write(ctx, to, msgs)
}

// Remove implements [Session].
func (s checkedSession) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...Entry) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.explain(s.Session.Remove(ctx, msgs, entries...))
}

// Scan implements [deadletter.Queue]. The scan has its own session.
func (q *driverQueue) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := q.connect(ctx)
	if err != nil {
		return nil, err
	}
	scan, err := q.openScan(ctx, s, deadletter.Holder{Who: "a reader", Task: "none"}, from, false)
	if err != nil {
		return nil, errors.Join(err, finish(ctx, s.Close))
	}
	scan.own = true
	return scan, nil
}

// Locate implements [deadletter.Locator].
func (q *driverQueue) Locate(ctx context.Context, at []deadletter.Position) (found deadletter.Located, err error) {
	s, err := q.connect(ctx)
	if err != nil {
		return found, err
	}
	found, err = s.Locate(ctx, at)
	return found, errors.Join(err, finish(ctx, s.Close))
}

// openScan opens a scan of a session. If reading hides messages, it first takes the read lock, unless hasLock says that the
// session or its claim has it.
func (q *driverQueue) openScan(ctx context.Context, s checkedSession, h deadletter.Holder, from deadletter.From, hasLock bool) (*driverScan, error) {
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
func (q *driverQueue) takeReadLock(ctx context.Context, s checkedSession, h deadletter.Holder) error {
	var first *deadletter.Holder // the runner of another task when it was first found
	for {
		err := s.Lock(ctx, ReadLock, h)
		if !errors.Is(err, deadletter.ErrHeld) {
			return err
		}
		runner, ok, err := q.LockHolder(ctx, ClaimLock)
		if err != nil {
			return err
		}
		if ok && runner.Task != h.Task {
			if first == nil {
				first = &runner
			}
			if runner.Until.IsZero() || runner.Until.After(first.Until) {
				return &deadletter.HeldError{DLQ: q.Info().DLQ, Holder: runner}
			}
		}
		if err := wait.For(ctx, readLockInterval); err != nil {
			return fmt.Errorf("waiting until nobody else reads %s: %w", q.Info().DLQ, err)
		}
	}
}

// maxFinish bounds a call that ends a scan or a session, even after the caller's context has ended. If the broker does not answer, the
// locks expire later.
const maxFinish = 10 * time.Second

func finish(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return end(ctx)
}

// driverScan is a [deadletter.Scan] over the reader of a session.
type driverScan struct {
	s      checkedSession
	own    bool // Close closes the session, which is not a claim's
	r      Reader
	closed bool
}

// Next implements [deadletter.Scan].
func (s *driverScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if err := cmp.Or(ctx.Err(), s.s.Check()); err != nil {
		return nil, err
	}
	if want == nil {
		want = func(*deadletter.Message) bool { return true }
	}
	m, err := s.r.Next(ctx, want)
	return m, s.s.explain(err)
}

// CountArrivals implements [deadletter.ArrivalCounter].
func (s *driverScan) CountArrivals(ctx context.Context) (int, error) {
	if a, ok := s.r.(deadletter.ArrivalCounter); ok {
		return a.CountArrivals(ctx)
	}
	return 0, deadletter.ErrNotReported
}

// Close implements [deadletter.Scan].
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
