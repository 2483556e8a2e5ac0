package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/delayqueue"
)

const (
	// moveLinger is how long a copy that moves on waits for others: at 500 a
	// second that fills a request. Its due time is absolute, so it adds nothing.
	moveLinger = 20 * time.Millisecond
	// publishLinger is the same for what a service publishes, which it waits for.
	publishLinger = time.Millisecond
	sendWorkers   = 16
)

// sender writes messages to one queue, ten in a request where there are so many.
type sender struct {
	api     *sqs.Client
	queue   *queue
	batches *batcher[*sending]
}

// sending is one message on its way.
type sending struct {
	outgoing
	ctx   context.Context
	taken atomic.Bool // by a request, or by the end of ctx
	done  chan error  // buffered
}

func newSender(api *sqs.Client, q *queue, linger time.Duration) *sender {
	s := &sender{api: api, queue: q}
	// The bound of one message is that of a request too.
	s.batches = newBatcher(linger, sendWorkers, q.limit, func(m *sending) int { return m.size() }, s.write)
	return s
}

// send writes a message and returns nil when SQS has it. When it does not, the
// message may be there all the same: an answer may have got lost.
func (s *sender) send(ctx context.Context, o outgoing) error {
	m := &sending{outgoing: o, ctx: ctx, done: make(chan error, 1)}
	s.batches.add(m)
	return s.await(m)
}

// await returns what became of a message.
func (s *sender) await(m *sending) error {
	select {
	case err := <-m.done:
		return err
	case <-m.ctx.Done():
		if m.taken.CompareAndSwap(false, true) {
			return fmt.Errorf("sqs: sending to %s: it waits for other requests: %w", s.queue.name, context.Cause(m.ctx))
		}
		return <-m.done // the request ends with ctx
	}
}

// sendAll writes messages, to a FIFO queue one request after another, and returns what
// became of each.
func (s *sender) sendAll(all []*sending) []error {
	if s.queue.fifo {
		s.inOrder(all)
	} else {
		for _, m := range all {
			s.batches.add(m)
		}
	}
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = s.await(m)
	}
	return errs
}

// inOrder sends messages, as many in a request as it takes. Behind one that failed
// nothing more of its group is sent: it would overtake it.
func (s *sender) inOrder(all []*sending) {
	broken := make(map[string]error)
	for len(all) > 0 {
		n, bytes := 0, 0
		var batch []*sending
		for n < len(all) && len(batch) < batchMost {
			m := all[n]
			if err := broken[m.group]; err != nil {
				m.done <- fmt.Errorf("sqs: a message before it in its group was not sent: %w", err)
				n++
				continue
			}
			if bytes += m.size(); len(batch) > 0 && bytes > s.queue.limit {
				break
			}
			batch = append(batch, m)
			n++
		}
		sent := slices.Clone(batch) // write uses it up
		s.write(batch)
		for _, m := range sent {
			err := <-m.done
			if err != nil && !errors.Is(err, delayqueue.ErrRefused) {
				broken[m.group] = err
			}
			m.done <- err
		}
		all = all[n:]
	}
}

// write sends one request and tells each message what became of it: that SQS
// answered 200 says nothing of a single one.
func (s *sender) write(all []*sending) {
	batch := all[:0]
	var end time.Time
	for _, m := range all {
		if !m.taken.CompareAndSwap(false, true) {
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
	err := s.request(ctx, batch)
	if err != nil && len(batch) > 1 && together(err) {
		for _, m := range batch {
			m.done <- s.alone(ctx, m)
		}
		return
	}
	if err != nil {
		for _, m := range batch {
			m.done <- s.failed(err)
		}
	}
}

// alone is write for one message of a batch that was refused as a whole.
func (s *sender) alone(ctx context.Context, m *sending) error {
	one := &sending{outgoing: m.outgoing, done: make(chan error, 1)}
	if err := s.request(ctx, []*sending{one}); err != nil {
		return s.failed(err)
	}
	return <-one.done
}

// request is one request. The error is of the whole; otherwise each message has
// been told.
func (s *sender) request(ctx context.Context, batch []*sending) error {
	in := &sqs.SendMessageBatchInput{QueueUrl: &s.queue.url, Entries: make([]types.SendMessageBatchRequestEntry, len(batch))}
	for i, m := range batch {
		in.Entries[i] = m.entry(strconv.Itoa(i), s.queue)
	}
	out, err := s.api.SendMessageBatch(ctx, in)
	if err != nil {
		return err
	}
	told := make([]bool, len(batch))
	tell := func(id *string, err error) {
		if i, bad := strconv.Atoi(aws.ToString(id)); bad == nil && i >= 0 && i < len(batch) && !told[i] {
			told[i] = true
			batch[i].done <- err
		}
	}
	for _, f := range out.Failed { // first: a failure that is told of is one
		tell(f.Id, s.failed(failedEntry(f)))
	}
	for _, ok := range out.Successful {
		tell(ok.Id, nil)
	}
	for i := range batch {
		tell(in.Entries[i].Id, s.failed(errors.New("the answer does not mention it")))
	}
	return nil
}

func (s *sender) failed(err error) error {
	if refused(err) {
		return fmt.Errorf("%w: %w", delayqueue.ErrRefused, errorOf("sending to", s.queue.name, err))
	}
	return errorOf("sending to", s.queue.name, err)
}

// entry is the message in a request. The queue's own delay is taken where a message
// names none, and none cannot be named.
func (m *sending) entry(id string, q *queue) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{
		Id: &id, MessageBody: &m.body, MessageAttributes: m.attributes, DelaySeconds: m.delay,
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
