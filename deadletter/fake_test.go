package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
)

// fakeDLQ is a DLQ in memory that a test controls completely. It belongs to one goroutine.
type fakeDLQ struct {
	messages []*deadletter.Message
	tasks    []deadletter.Task
	info     deadletter.Info
	requests map[string]deadletter.Request // by task

	sent      []string              // ids of the sent messages
	copies    []*deadletter.Message // the sent messages
	sentSizes []int                 // sizes of the sent windows

	claimed      *deadletter.Holder
	closed       int   // number of closed scans
	claimScanErr error // the error of a claim's Scan
	// refuse returns the error of a claim's Settle and Save, which then do nothing; nil for none.
	refuse func(deadletter.Task) error
	// Hooks, each of which may be nil. The fake calls onSave after it has acted, and the others before.
	onScan func(claimed bool)
	onNext func(ctx context.Context)
	onSend func(ctx context.Context)
	onAdd  func(ctx context.Context)
	onSave func(deadletter.Task)
}

// newFakeDLQ returns a fakeDLQ with n dead letters that failed an hour ago.
func newFakeDLQ(n int) *fakeDLQ {
	h := &fakeDLQ{info: orders, requests: make(map[string]deadletter.Request)}
	for i := range n {
		h.addDeadLetter(fmt.Sprintf("m-%04d", i), time.Now().Add(-time.Hour))
	}
	return h
}

func (h *fakeDLQ) addDeadLetter(id string, at time.Time) {
	h.messages = append(h.messages, &deadletter.Message{ID: id, Position: deadletter.Position(id), Time: at})
}

// ids returns the ids of the messages in the DLQ.
func (h *fakeDLQ) ids() (ids []string) {
	for _, m := range h.messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// onlyTask returns the one task of the DLQ.
func (h *fakeDLQ) onlyTask(t *testing.T) deadletter.Task {
	t.Helper()
	all, err := deadletter.History(t.Context(), h)
	if err != nil || len(all) != 1 {
		t.Fatalf("the history is %+v: %v", all, err)
	}
	return all[0]
}

func callHook[T any](hook func(T), arg T) {
	if hook != nil {
		hook(arg)
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
func (h *fakeDLQ) Request(_ context.Context, task string, r deadletter.Request) error {
	h.requests[task] = r
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
	return &fakeClaim{h}, nil
}

func (h *fakeDLQ) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	callHook(h.onScan, false)
	return &fakeScan{h: h, all: slices.Clone(h.messages)}, nil
}

type fakeScan struct {
	h   *fakeDLQ
	all []*deadletter.Message
}

func (s *fakeScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	callHook(s.h.onNext, ctx)
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

func (s *fakeScan) Close() error {
	s.h.closed++
	return nil
}

type fakeClaim struct{ h *fakeDLQ }

func (c *fakeClaim) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	callHook(c.h.onScan, true)
	if c.h.claimScanErr != nil {
		return (*fakeScan)(nil), c.h.claimScanErr // a typed nil, which a faulty adapter may return
	}
	return &fakeScan{h: c.h, all: slices.Clone(c.h.messages)}, nil
}

func (c *fakeClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	callHook(c.h.onSend, ctx)
	errs := make([]error, len(msgs))
	c.h.sentSizes = append(c.h.sentSizes, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] == nil {
			c.h.sent = append(c.h.sent, m.ID)
			c.h.copies = append(c.h.copies, m)
		}
	}
	return errs
}

func (c *fakeClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	callHook(c.h.onAdd, ctx)
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = ctx.Err(); errs[i] == nil {
			c.h.messages = append(c.h.messages, m)
		}
	}
	return errs
}

// check returns why the claim cannot save a task.
func (c *fakeClaim) check(ctx context.Context, t deadletter.Task) error {
	if err := ctx.Err(); err != nil || c.h.refuse == nil {
		return err
	}
	return c.h.refuse(t)
}

func (c *fakeClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if err := c.check(ctx, t); err != nil {
		return err
	}
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			c.h.messages = slices.DeleteFunc(c.h.messages, func(m *deadletter.Message) bool { return m == s.Message })
		}
	}
	return c.Save(ctx, t)
}

func (c *fakeClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := c.check(ctx, t); err != nil {
		return err
	}
	if i := slices.IndexFunc(c.h.tasks, func(was deadletter.Task) bool { return was.ID == t.ID }); i >= 0 {
		c.h.tasks[i] = t
	} else {
		c.h.tasks = append(c.h.tasks, t)
	}
	callHook(c.h.onSave, t)
	return nil
}

func (c *fakeClaim) Requested(_ context.Context, task string) (deadletter.Request, error) {
	return c.h.requests[task], nil
}

func (c *fakeClaim) Release(context.Context) error {
	c.h.claimed = nil
	return nil
}

var orders = deadletter.Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing", ReplayTo: "orders.billing.retry"}

// read returns the dead letter with those headers, as an adapter reads it.
func read(headers []deadletter.Header, ours ...msgdriver.Header) *deadletter.Message {
	m := &deadletter.Message{Time: time.Unix(1_700_000_000, 0).UTC(), Headers: headers}
	driver.ReadHeaders(m, orders, ours, func() string { return "made up" })
	return m
}
