package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
)

const (
	// MoveLinger is how long a copy waits for others: at 500 a second that fills a request. Due times are absolute,
	// so it adds no delay.
	MoveLinger = 20 * time.Millisecond
	// PublishLinger is the same for publishes, whose callers wait for the result.
	PublishLinger = time.Millisecond
	sendWorkers   = 16
)

// Sender writes messages to one queue, up to ten in a request. It is safe for concurrent use.
type Sender struct {
	queue   *Queue
	batches *Batcher[*sending]
}

// sending is a message that is being sent.
type sending struct {
	wire.Outgoing
	ctx     context.Context
	claimed atomic.Bool // by a request, or by the end of ctx
	report  func(error) // called once, with nil when SQS has the message
	err     error       // what was reported; only for SendAll
}

// NewSender returns a sender whose messages wait up to linger for others.
func NewSender(q *Queue, linger time.Duration) *Sender {
	s := &Sender{queue: q}
	// The limit of one message is the limit of a request too.
	s.batches = NewBatcher(linger, sendWorkers, q.MaxSize, func(m *sending) int { return m.Size() }, s.sendBatch)
	return s
}

// Send writes a message and calls onResult from another goroutine, with nil when SQS has the message. After an error
// SQS may have it too, because the answer may be lost. If SQS will never take the message, the error is
// driver.ErrRefused.
func (s *Sender) Send(ctx context.Context, o wire.Outgoing, onResult func(error)) {
	s.batches.Add(&sending{Outgoing: o, ctx: ctx, report: onResult})
}

func (s *Sender) lateError(m *sending) error {
	return fmt.Errorf("sqs: sending to %s: it waits for other requests: %w", s.queue.Name, context.Cause(m.ctx))
}

// SendAll composes n messages, writes them and returns the result of each. For a FIFO queue it sends one request after
// another.
func (s *Sender) SendAll(ctx context.Context, n int, compose func(i int) (wire.Outgoing, error)) []error {
	errs := make([]error, n)
	var all []*sending
	var unreported sync.WaitGroup
	for i := range n {
		o, err := compose(i)
		if err != nil {
			errs[i] = err
			continue
		}
		m := &sending{Outgoing: o, ctx: ctx}
		m.report = func(err error) {
			m.err, errs[i] = err, err
			unreported.Done()
		}
		unreported.Add(1)
		all = append(all, m)
	}
	if s.queue.FIFO {
		s.sendInOrder(all)
		return errs
	}
	defer context.AfterFunc(ctx, func() {
		for _, m := range all {
			if m.claimed.CompareAndSwap(false, true) { // otherwise its request ends with ctx
				m.report(s.lateError(m))
			}
		}
	})()
	for _, m := range all {
		s.batches.Add(m)
	}
	unreported.Wait()
	return errs
}

// sendInOrder sends messages, as many as possible in each request, but of each group one: SQS may refuse one entry of a request and
// accept those behind it. After a failure it sends no later message of that group, which would overtake the failed one.
func (s *Sender) sendInOrder(all []*sending) {
	broken := make(map[string]error)
	for len(all) > 0 {
		var batch, rest []*sending
		bytes, taken := 0, make(map[string]bool)
		for _, m := range all {
			switch err := broken[m.Group]; {
			case err != nil:
				m.report(fmt.Errorf("sqs: a message before it in its group was not sent: %w", err))
				continue
			case !taken[m.Group] && len(batch) < MaxBatch && (len(batch) == 0 || bytes+m.Size() <= s.queue.MaxSize):
				batch = append(batch, m)
				bytes += m.Size()
			default:
				rest = append(rest, m)
			}
			taken[m.Group] = true
		}
		s.sendBatch(slices.Clone(batch)) // it modifies its slice
		for _, m := range batch {
			if m.err != nil && !errors.Is(m.err, driver.ErrRefused) {
				broken[m.Group] = m.err
			}
		}
		all = rest
	}
}

// sendBatch sends one request and reports the result of each message. A status of 200 does not mean that every
// message was accepted.
func (s *Sender) sendBatch(all []*sending) {
	batch := all[:0]
	var end time.Time
	for _, m := range all {
		if !m.claimed.CompareAndSwap(false, true) {
			continue
		}
		if m.ctx.Err() != nil {
			m.report(s.lateError(m))
			continue
		}
		batch = append(batch, m)
		if t, ok := m.ctx.Deadline(); ok && (end.IsZero() || t.Before(end)) {
			end = t
		}
	}
	if len(batch) == 0 {
		return
	}
	ctx := context.Background()
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	results, err := s.sendRequest(ctx, batch)
	if err != nil && len(batch) > 1 && mayConcernOneEntry(err) {
		for i, m := range batch { // one by one
			one, _ := s.sendRequest(ctx, []*sending{m})
			results[i] = one[0]
		}
	}
	for i, m := range batch {
		m.report(s.sendError(results[i]))
	}
}

// sendRequest sends one request and returns the result of each message. err concerns the whole request.
func (s *Sender) sendRequest(ctx context.Context, batch []*sending) (results []error, err error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(batch))
	for i, m := range batch {
		entries[i] = m.entry(s.queue)
	}
	return s.queue.SendEntries(ctx, entries)
}

// sendError returns the error of a message that was not sent; nil for nil.
func (s *Sender) sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case isRefused(err):
		return fmt.Errorf("%w: %w", driver.ErrRefused, ErrorOf("sending to", s.queue.Name, err))
	default:
		return ErrorOf("sending to", s.queue.Name, err)
	}
}

// entry returns the message as an entry of a request. DelaySeconds 0 means the queue's own delay, so a copy that
// should not wait gets 1.
func (m *sending) entry(q *Queue) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{MessageBody: &m.Body, MessageAttributes: m.Attributes, DelaySeconds: m.Delay}
	if q.Delay > 0 && !q.FIFO && m.Delay == 0 && m.Moved {
		e.DelaySeconds = 1
	}
	if q.FIFO && m.Group != "" || isGroupID(m.Group) { // an import may have another broker's key here
		e.MessageGroupId = &m.Group
	}
	if q.FIFO && m.DedupID != "" {
		e.MessageDeduplicationId = &m.DedupID
	}
	if m.Trace != "" {
		e.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			wire.TraceHeader: {DataType: aws.String(wire.StringType), StringValue: &m.Trace},
		}
	}
	return e
}

// isGroupID reports whether SQS accepts id as a MessageGroupId. On a standard queue it names a tenant of a fair
// queue.
func isGroupID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}
