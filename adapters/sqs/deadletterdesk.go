package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/deadletter"
)

const (
	deskWorkers = 8
	mostLeases  = 16 // of which a message that stays in hand is hidden at once in the end
)

// desk is where the scans of one reader are, and what they have in hand: hidden
// from others for as long as the keeper extends that.
type desk struct {
	q     *deadLetters
	l     *lessee
	scans []*deadScan
	marks map[deadletter.Position]deadletter.Outcome
	sent  map[string]bool // ids that were replayed just after a scan began

	mu   sync.Mutex
	held map[string]*held // by MessageId
}

// held is a message in hand.
type held struct {
	scan    *deadScan
	receipt string
	until   time.Time
	hidden  time.Duration // at the last time; twice as long at the next one
}

// longest is for how long what is in hand stays hidden when it was extended now.
func (d *desk) longest() (longest time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.held {
		left := h.until.Sub(now)
		if d.due(h, now) {
			left = d.next(h)
		}
		longest = max(longest, left)
	}
	return longest
}

// due tells whether a message in hand might be seen before the time after next at
// which that is prevented.
func (d *desk) due(h *held, now time.Time) bool { return h.until.Sub(now) <= d.q.lease*2/3 }

func (d *desk) next(h *held) time.Duration { return min(2*h.hidden, mostLeases*d.q.lease) }

// extend hides for longer what is due.
func (d *desk) extend(ctx context.Context) {
	now := time.Now()
	var batch []types.ChangeMessageVisibilityBatchRequestEntry
	d.mu.Lock()
	for _, h := range d.held {
		if !d.due(h, now) {
			continue
		}
		h.hidden = d.next(h)
		h.until = now.Add(h.hidden)
		batch = append(batch, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(len(batch) % batchMost)), ReceiptHandle: aws.String(h.receipt), VisibilityTimeout: int32(h.hidden / time.Second),
		})
	}
	d.mu.Unlock()
	_ = d.change(ctx, batch) // what fails is seen by others, and by us again
}

// change sends changes of visibility, ten at a time.
func (d *desk) change(ctx context.Context, all []types.ChangeMessageVisibilityBatchRequestEntry) error {
	return inTens(all, func(ten []types.ChangeMessageVisibilityBatchRequestEntry) error {
		out, err := d.q.c.api.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &d.q.dlq.url, Entries: ten})
		if err == nil {
			err = entries(out.Failed)
		}
		if err != nil {
			return errorOf("hiding or showing messages of", d.q.dlq.name, err)
		}
		return nil
	})
}

// inTens calls do for ten at a time, some at once, and returns what went wrong.
func inTens[T any](all []T, do func([]T) error) error {
	var done sync.WaitGroup
	slots := make(chan struct{}, deskWorkers)
	errs := make(chan error, len(all)/batchMost+1)
	for ten := range slices.Chunk(all, batchMost) {
		slots <- struct{}{}
		done.Go(func() {
			errs <- do(ten)
			<-slots
		})
	}
	done.Wait()
	close(errs)
	var found []error
	for err := range errs {
		found = append(found, err)
	}
	return errors.Join(found...)
}

// release hands messages back that a scan has in hand: all, or those that are named.
// What fails is seen when its time is over.
func (d *desk) release(ctx context.Context, s *deadScan, ids []string) error {
	var batch []types.ChangeMessageVisibilityBatchRequestEntry
	add := func(id string, h *held) {
		batch = append(batch, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(len(batch) % batchMost)), ReceiptHandle: aws.String(h.receipt), VisibilityTimeout: 0,
		})
		delete(d.held, id)
	}
	d.mu.Lock()
	if ids == nil {
		for id, h := range d.held {
			if h.scan == s {
				add(id, h)
			}
		}
	}
	for _, id := range ids {
		if h := d.held[id]; h != nil {
			add(id, h)
		}
	}
	d.mu.Unlock()
	return d.change(ctx, batch)
}

// receive takes up to ten more messages in hand. What is in hand already and comes
// again has a new receipt.
func (d *desk) receive(ctx context.Context, s *deadScan, wait time.Duration) (fresh []types.Message, err error) {
	at := time.Now()
	out, err := d.q.c.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &d.q.dlq.url, MaxNumberOfMessages: batchMost, VisibilityTimeout: int32(d.q.lease / time.Second), WaitTimeSeconds: int32(wait / time.Second),
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if code(err) == "OverLimit" {
		return nil, fmt.Errorf("sqs: %s: SQS lets no more messages be in hand: that is as far as one can look. Replay or purge what was seen: %w", d.q.info.DLQ, clean(err))
	}
	if err != nil {
		return nil, errorOf("reading", d.q.dlq.name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range out.Messages {
		id := aws.ToString(m.MessageId)
		h := d.held[id]
		if h == nil {
			h = &held{scan: s}
			d.held[id] = h
			fresh = append(fresh, m)
		}
		h.receipt, h.hidden, h.until = aws.ToString(m.ReceiptHandle), d.q.lease, at.Add(d.q.lease)
	}
	return fresh, nil
}

// remove deletes messages that are in hand.
func (d *desk) remove(ctx context.Context, ids []string) error {
	entries := make([]types.DeleteMessageBatchRequestEntry, 0, len(ids))
	d.mu.Lock()
	for _, id := range ids {
		h := d.held[id]
		if h == nil {
			d.mu.Unlock()
			return fmt.Errorf("sqs: message %s of %s is in hand no more", id, d.q.info.DLQ)
		}
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(len(entries) % batchMost)), ReceiptHandle: aws.String(h.receipt)})
	}
	d.mu.Unlock()
	err := inTens(entries, func(ten []types.DeleteMessageBatchRequestEntry) error {
		out, err := d.q.c.api.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &d.q.dlq.url, Entries: ten})
		if err != nil {
			return errorOf("deleting from", d.q.dlq.name, err)
		}
		var errs []error
		for _, f := range out.Failed { // a stale one, too: it is seen again
			errs = append(errs, errorOf("deleting from", d.q.dlq.name, failedEntry(f)))
		}
		return errors.Join(errs...)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.held, id) // what failed is seen again
	}
	return err
}
