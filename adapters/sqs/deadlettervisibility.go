package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	deadLetterWorkers = 8
	maxLeases         = 16 // the longest hiding of a held message, in leases
)

// heldMessage is a received message that its session keeps hidden from others.
type heldMessage struct {
	receipt string
	until   time.Time
	hidden  time.Duration // the last timeout; the next one is twice as long
}

// longestHidden returns how long held messages would stay hidden if extended now.
func (s *deadSession) longestHidden() (longest time.Duration) {
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
func (s *deadSession) needsExtension(h *heldMessage, now time.Time) bool {
	return h.until.Sub(now) <= s.q.lease*2/3
}

func (s *deadSession) nextHiding(h *heldMessage) time.Duration {
	return min(2*h.hidden, maxLeases*s.q.lease)
}

// extendHeld extends the hiding of the messages that need it.
func (s *deadSession) extendHeld(ctx context.Context) {
	now := time.Now()
	var all []hiding
	s.mu.Lock()
	for _, h := range s.held {
		if !s.needsExtension(h, now) {
			continue
		}
		h.hidden = s.nextHiding(h)
		h.until = now.Add(h.hidden)
		all = append(all, hiding{h.receipt, int32(h.hidden / time.Second)})
	}
	s.mu.Unlock()
	_ = s.changeVisibility(ctx, all) // after an error others may receive the message, and so may this session
}

// changeVisibility changes the visibility of messages, ten per request.
func (s *deadSession) changeVisibility(ctx context.Context, all []hiding) error {
	return inBatches(all, func(ten []hiding) error {
		if err := realErrors(s.q.dlq.hideReceipts(ctx, s.q.client.api, ten)); err != nil {
			return errorOf("hiding or showing messages of", s.q.dlq.name, err)
		}
		return nil
	})
}

// inBatches calls do for ten items at a time, several batches at once, and returns the errors.
func inBatches[T any](all []T, do func([]T) error) error {
	var done sync.WaitGroup
	slots := make(chan struct{}, deadLetterWorkers)
	errs := make(chan error, len(all)/maxBatch+1)
	for ten := range slices.Chunk(all, maxBatch) {
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
func (s *deadSession) releaseHeld(ctx context.Context) error {
	var all []hiding
	s.mu.Lock()
	for _, h := range s.held {
		all = append(all, hiding{receipt: h.receipt})
	}
	clear(s.held)
	s.mu.Unlock()
	return s.changeVisibility(ctx, all)
}

// receiveMessages receives up to ten messages and returns the new ones. A message that is held already gets a new
// receipt.
func (s *deadSession) receiveMessages(ctx context.Context) (fresh []types.Message, err error) {
	at := time.Now()
	out, err := s.q.client.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &s.q.dlq.url, MaxNumberOfMessages: maxBatch, VisibilityTimeout: int32(s.q.lease / time.Second), WaitTimeSeconds: int32(receiveWaitTime / time.Second),
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if errorCode(err) == "OverLimit" {
		return nil, fmt.Errorf("sqs: %s: SQS lets no more messages be in flight, so the rest cannot be seen. Replay or purge the messages so far: %w", s.q.info.DLQ, redactError(err))
	}
	if err != nil {
		return nil, errorOf("reading", s.q.dlq.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range out.Messages {
		id := aws.ToString(m.MessageId)
		h := s.held[id]
		if h == nil {
			h = &heldMessage{}
			s.held[id] = h
			fresh = append(fresh, m)
		}
		h.receipt, h.hidden, h.until = aws.ToString(m.ReceiptHandle), s.q.lease, at.Add(s.q.lease)
	}
	return fresh, nil
}

// deleteMessages deletes held messages.
func (s *deadSession) deleteMessages(ctx context.Context, ids []string) error {
	receipts := make([]string, len(ids))
	s.mu.Lock()
	for i, id := range ids {
		h := s.held[id]
		if h == nil {
			s.mu.Unlock()
			return fmt.Errorf("sqs: message %s of %s is no longer held", id, s.q.info.DLQ)
		}
		receipts[i] = h.receipt
	}
	s.mu.Unlock()
	err := inBatches(receipts, func(ten []string) error {
		// A stale receipt is an error too: the message is read again.
		results, err := s.q.dlq.deleteReceipts(ctx, s.q.client.api, ten)
		if err == nil {
			err = errors.Join(results...)
		}
		if err != nil {
			return errorOf("deleting from", s.q.dlq.name, err)
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.held, id) // a message that was not deleted is read again
	}
	return err
}
