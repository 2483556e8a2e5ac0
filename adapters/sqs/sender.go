package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/driver"
)

const (
	// moveLinger is how long a copy waits for others: at 500 a second that fills a request. Due times are absolute,
	// so it adds no delay.
	moveLinger = 20 * time.Millisecond
	// publishLinger is the same for publishes, whose callers wait for the result.
	publishLinger = time.Millisecond
	sendWorkers   = 16
)

// sender writes messages to one queue, up to ten in a request.
type sender struct {
	api     *sqs.Client
	queue   *queue
	batches *batcher[*sending]
}

// sending is a message that is being sent.
type sending struct {
	outgoing
	ctx     context.Context
	claimed atomic.Bool // by a request, or by the end of ctx
	report  func(error) // called once, with nil when SQS has the message
	err     error       // what was reported; only for sendAll
}

func newSender(api *sqs.Client, q *queue, linger time.Duration) *sender {
	s := &sender{api: api, queue: q}
	// The limit of one message is the limit of a request too.
	s.batches = newBatcher(linger, sendWorkers, q.maxSize, func(m *sending) int { return m.size() }, s.sendBatch)
	return s
}

// post writes a message and calls onResult from another goroutine, with nil when SQS has the message. After an error
// SQS may have it too, because the answer may be lost.
func (s *sender) post(ctx context.Context, o outgoing, onResult func(error)) {
	s.batches.add(&sending{outgoing: o, ctx: ctx, report: onResult})
}

func (s *sender) lateError(m *sending) error {
	return fmt.Errorf("sqs: sending to %s: it waits for other requests: %w", s.queue.name, context.Cause(m.ctx))
}

// sendAll composes n messages, writes them and returns the result of each. For a FIFO queue it sends one request after
// another.
func (s *sender) sendAll(ctx context.Context, n int, compose func(i int) (outgoing, error)) []error {
	errs := make([]error, n)
	var all []*sending
	var unreported sync.WaitGroup
	for i := range n {
		o, err := compose(i)
		if err != nil {
			errs[i] = err
			continue
		}
		m := &sending{outgoing: o, ctx: ctx}
		m.report = func(err error) {
			m.err, errs[i] = err, err
			unreported.Done()
		}
		unreported.Add(1)
		all = append(all, m)
	}
	if s.queue.fifo {
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
		s.batches.add(m)
	}
	unreported.Wait()
	return errs
}

// sendInOrder sends messages, as many as possible in each request. After a failure it sends no later message of that
// group, which would overtake the failed one.
func (s *sender) sendInOrder(all []*sending) {
	broken := make(map[string]error)
	for len(all) > 0 {
		n, bytes := 0, 0
		var batch []*sending
		for n < len(all) && len(batch) < maxBatch {
			m := all[n]
			if err := broken[m.group]; err != nil {
				m.report(fmt.Errorf("sqs: a message before it in its group was not sent: %w", err))
				n++
				continue
			}
			if bytes += m.size(); len(batch) > 0 && bytes > s.queue.maxSize {
				break
			}
			batch = append(batch, m)
			n++
		}
		s.sendBatch(slices.Clone(batch)) // it modifies its slice
		for _, m := range batch {
			if m.err != nil && !errors.Is(m.err, driver.ErrRefused) {
				broken[m.group] = m.err
			}
		}
		all = all[n:]
	}
}

// sendBatch sends one request and reports the result of each message. A status of 200 does not mean that every
// message was accepted.
func (s *sender) sendBatch(all []*sending) {
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
			if one, err := s.sendRequest(ctx, []*sending{m}); err != nil {
				results[i] = err
			} else {
				results[i] = one[0]
			}
		}
	}
	for i, m := range batch {
		m.report(s.sendError(results[i]))
	}
}

// sendRequest sends one request and returns the result of each message. err concerns the whole request.
func (s *sender) sendRequest(ctx context.Context, batch []*sending) (results []error, err error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(batch))
	for i, m := range batch {
		entries[i] = m.entry(&entryIDs[i], s.queue)
	}
	return s.queue.sendEntries(ctx, s.api, entries)
}

// sendError returns the error of a message that was not sent; nil for nil.
func (s *sender) sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case isRefused(err):
		return fmt.Errorf("%w: %w", driver.ErrRefused, errorOf("sending to", s.queue.name, err))
	default:
		return errorOf("sending to", s.queue.name, err)
	}
}

// entry returns the message as an entry of a request. DelaySeconds 0 means the queue's own delay, so a copy that
// should not wait gets 1.
func (m *sending) entry(id *string, q *queue) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{
		Id: id, MessageBody: &m.body, MessageAttributes: m.attributes, DelaySeconds: m.delay,
	}
	if q.delay > 0 && !q.fifo && m.delay == 0 && m.moved {
		e.DelaySeconds = 1
	}
	if m.group != "" {
		e.MessageGroupId = &m.group
	}
	if m.dedup != "" {
		e.MessageDeduplicationId = &m.dedup
	}
	if m.trace != "" {
		e.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			traceHeader: {DataType: aws.String(stringType), StringValue: aws.String(m.trace)},
		}
	}
	return e
}
