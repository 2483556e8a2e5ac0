package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

const (
	maxWorkers = 8
	maxLeases  = 16 // the longest hiding of a held message, in leases
)

// heldMessage is a received message that its session keeps hidden from others.
type heldMessage struct {
	receipt string
	until   time.Time
	hidden  time.Duration // the last timeout; the next one is twice as long
}

// longestHidden returns how long held messages would stay hidden if extended now.
func (s *session) longestHidden() (longest time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		left := h.until.Sub(now)
		if s.needsExtension(h, now) {
			left = s.nextHiding(h)
		}
		longest = max(longest, left)
	}
	return longest
}

// needsExtension reports whether a held message might become visible before the extension after the next one.
func (s *session) needsExtension(h *heldMessage, now time.Time) bool {
	return h.until.Sub(now) <= s.q.Lease*2/3
}

func (s *session) nextHiding(h *heldMessage) time.Duration {
	return min(2*h.hidden, maxLeases*s.q.Lease)
}

// extendHeld extends the hiding of the messages that need it.
func (s *session) extendHeld(ctx context.Context) {
	now := time.Now()
	var all []api.Hiding
	s.mu.Lock()
	for _, h := range s.held {
		if !s.needsExtension(h, now) {
			continue
		}
		h.hidden = s.nextHiding(h)
		h.until = now.Add(h.hidden)
		all = append(all, api.Hiding{Receipt: h.receipt, Seconds: int32(h.hidden / time.Second)})
	}
	s.mu.Unlock()
	err := changeVisibility(ctx, s.q.DLQ, all) // after an error others may receive the message, and so may this session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extendErr = err
}

// changeVisibility changes the visibility of messages, ten per request. It ignores stale receipts, because such a message
// is deleted or another process has it.
func changeVisibility(ctx context.Context, q *api.Queue, all []api.Hiding) error {
	return inBatches(all, func(ten []api.Hiding) error {
		if err := realErrors(q.HideReceipts(ctx, ten)); err != nil {
			return api.ErrorOf("changing the visibility of messages of", q.Name, err)
		}
		return nil
	})
}

// realErrors returns the errors of a request: err, or those of its entries that are not a stale receipt.
func realErrors(results []error, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(slices.DeleteFunc(results, api.IsStaleReceipt)...)
}

// inBatches calls do for ten items at a time, several batches at once, and returns the errors.
func inBatches[T any](all []T, do func([]T) error) error {
	var done sync.WaitGroup
	slots := make(chan struct{}, maxWorkers)
	errs := make(chan error, len(all)/api.MaxBatch+1)
	for ten := range slices.Chunk(all, api.MaxBatch) {
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

// releaseHeld makes the held messages visible. After an error they become visible when their timeout ends.
func (s *session) releaseHeld(ctx context.Context) error {
	var all []api.Hiding
	s.mu.Lock()
	for _, h := range s.held {
		all = append(all, api.Hiding{Receipt: h.receipt})
	}
	clear(s.held)
	s.mu.Unlock()
	return changeVisibility(ctx, s.q.DLQ, all)
}

// receiveMessages receives up to ten messages and returns the new ones. A message that is held already gets a new
// receipt.
func (s *session) receiveMessages(ctx context.Context) (fresh []types.Message, err error) {
	at := time.Now()
	msgs, err := s.q.DLQ.Receive(ctx, api.MaxBatch, receiveWaitTime, s.q.Lease)
	if api.ErrorCode(err) == "OverLimit" {
		return nil, fmt.Errorf("sqs: %s: SQS has no room for more messages in flight, so the rest cannot be read: replay or purge those that were read: %w", s.q.DLQ.Name, err)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		id := aws.ToString(m.MessageId)
		h := s.held[id]
		if h == nil {
			h = &heldMessage{}
			s.held[id] = h
			fresh = append(fresh, m)
		}
		h.receipt, h.hidden, h.until = aws.ToString(m.ReceiptHandle), s.q.Lease, at.Add(s.q.Lease)
	}
	return fresh, nil
}

// deleteMessages deletes held messages.
func (s *session) deleteMessages(ctx context.Context, ids []string) error {
	receipts := make([]string, len(ids))
	s.mu.Lock()
	for i, id := range ids {
		h := s.held[id]
		if h == nil {
			s.mu.Unlock()
			return fmt.Errorf("sqs: message %s of %s is not held by this session: scan again", id, s.q.DLQ.Name)
		}
		receipts[i] = h.receipt
	}
	s.mu.Unlock()
	err := inBatches(receipts, func(ten []string) error {
		// A stale receipt is an error too: the message is read again.
		results, err := s.q.DLQ.DeleteReceipts(ctx, ten)
		if err == nil {
			err = errors.Join(results...)
		}
		if err != nil {
			return api.ErrorOf("deleting from", s.q.DLQ.Name, err)
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.extendErr != nil {
		err = fmt.Errorf("%w. It could not be kept hidden: %w", err, s.extendErr)
	}
	for _, id := range ids {
		delete(s.held, id) // a message that was not deleted is read again
	}
	return err
}
