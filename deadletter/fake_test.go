package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// fakeDLQ is a DLQ that a test controls completely. It belongs to one goroutine.
type fakeDLQ struct {
	messages []*deadletter.Message
	tasks    []deadletter.Task
	info     deadletter.Info
	wants    map[string]deadletter.Request
	back     []string // ids of the sent messages
	sizes    []int    // sizes of the sent windows

	claimed *deadletter.Holder
	closed  int   // number of closed scans
	blind   error // the error of a scan with a claim
	// The fake calls each of these that is not nil before it acts.
	scans func(runs bool)
	next  func(ctx context.Context)
	sends func(ctx context.Context)
	adds  func(ctx context.Context)
	saves func(deadletter.Task)
}

// newFakeDLQ returns a fakeDLQ with n dead letters that failed an hour ago.
func newFakeDLQ(n int) *fakeDLQ {
	h := &fakeDLQ{info: orders, wants: make(map[string]deadletter.Request)}
	for i := range n {
		h.dies(fmt.Sprintf("m-%04d", i), time.Now().Add(-time.Hour))
	}
	return h
}

func (h *fakeDLQ) dies(id string, at time.Time) {
	h.messages = append(h.messages, &deadletter.Message{ID: id, Position: deadletter.Position(id), Time: at})
}

// ids returns the ids of the messages in the DLQ.
func (h *fakeDLQ) ids() (ids []string) {
	for _, m := range h.messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// only returns the one task of the DLQ.
func (h *fakeDLQ) only(t *testing.T) deadletter.Task {
	t.Helper()
	all, err := deadletter.History(t.Context(), h)
	if err != nil || len(all) != 1 {
		t.Fatalf("the history is %+v: %v", all, err)
	}
	return all[0]
}

func call[T any](do func(T), with T) {
	if do != nil {
		do(with)
	}
}

func (h *fakeDLQ) Info() deadletter.Info { return h.info }
func (h *fakeDLQ) Close() error          { return nil }
func (h *fakeDLQ) Count(context.Context) (n int64, exact bool, err error) {
	return int64(len(h.messages)), true, nil
}
func (h *fakeDLQ) Oldest(context.Context) (at time.Time, ok bool, err error) { return at, false, nil }
func (h *fakeDLQ) Retention(context.Context) (time.Duration, error)          { return 0, nil }
func (h *fakeDLQ) DropLimit(context.Context) (string, error)                 { return "", nil }
func (h *fakeDLQ) Tasks(context.Context) ([]deadletter.Task, error) {
	return slices.Clone(h.tasks), nil
}
func (h *fakeDLQ) Request(_ context.Context, task string, w deadletter.Request) error {
	h.wants[task] = w
	return nil
}

func (h *fakeDLQ) Holder(context.Context) (holder deadletter.Holder, ok bool, err error) {
	if h.claimed == nil {
		return holder, false, nil
	}
	return *h.claimed, true, nil
}

func (h *fakeDLQ) Claim(_ context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	if h.claimed != nil {
		return nil, &deadletter.HeldError{DLQ: orders.DLQ, Holder: *h.claimed}
	}
	h.claimed = &holder
	return &heapClaim{h}, nil
}

func (h *fakeDLQ) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	call(h.scans, false)
	return &heapScan{h: h, all: slices.Clone(h.messages)}, nil
}

type heapScan struct {
	h   *fakeDLQ
	all []*deadletter.Message
}

func (s *heapScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	call(s.h.next, ctx)
	if len(s.all) == 0 {
		return nil, io.EOF
	}
	m := s.all[0]
	s.all = s.all[1:]
	return wanted(m, want), nil
}

// wanted returns the result of a scan for a message.
func wanted(m *deadletter.Message, want func(*deadletter.Message) bool) *deadletter.Message {
	if want != nil && !want(m) {
		return nil
	}
	return m
}

func (s *heapScan) Close() error {
	s.h.closed++
	return nil
}

type heapClaim struct{ h *fakeDLQ }

func (c *heapClaim) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	call(c.h.scans, true)
	if c.h.blind != nil {
		return (*heapScan)(nil), c.h.blind // a typed nil, which a faulty adapter may return
	}
	return &heapScan{h: c.h, all: slices.Clone(c.h.messages)}, nil
}

func (c *heapClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	call(c.h.sends, ctx)
	errs := make([]error, len(msgs))
	c.h.sizes = append(c.h.sizes, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] == nil {
			c.h.back = append(c.h.back, m.ID)
		}
	}
	return errs
}

func (c *heapClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	call(c.h.adds, ctx)
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] == nil {
			c.h.messages = append(c.h.messages, m)
		}
	}
	return errs
}

func (c *heapClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			c.h.messages = slices.DeleteFunc(c.h.messages, func(m *deadletter.Message) bool { return m == s.Message })
		}
	}
	return c.Save(ctx, t)
}

func (c *heapClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if i := slices.IndexFunc(c.h.tasks, func(was deadletter.Task) bool { return was.ID == t.ID }); i >= 0 {
		c.h.tasks[i] = t
	} else {
		c.h.tasks = append(c.h.tasks, t)
	}
	call(c.h.saves, t)
	return nil
}

func (c *heapClaim) Requested(_ context.Context, task string) (deadletter.Request, error) {
	return c.h.wants[task], nil
}

func (c *heapClaim) DropMarks(context.Context, map[deadletter.Position]bool) error { return nil }

func (c *heapClaim) Release(context.Context) error {
	c.h.claimed = nil
	return nil
}
