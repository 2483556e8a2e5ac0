package sqs

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

// visibility is the receipt of a received message and the time until which it is hidden from others.
type visibility struct {
	mu         sync.Mutex
	receipt    string
	receivedAt time.Time     // SQS hides it for at most 12 h from then
	expires    time.Time     // when SQS deletes it, settled or not; zero if unknown
	until      time.Time     // hidden, by the local clock
	hiddenFor  time.Duration // the last visibility timeout
	due        time.Time     // it stays hidden beyond this time

	changing bool              // a request is under way; two at once could take effect in either order
	next     *visibilityChange // follows that request
}

// setReceipt stores the receipt of a receive. hidden is its visibility timeout. The message may have come before.
func (v *visibility) setReceipt(m *types.Message, at time.Time, hidden time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.receipt, v.receivedAt, v.until, v.hiddenFor = aws.ToString(m.ReceiptHandle), at, at.Add(hidden), hidden
	if at.Sub(v.expires) > hidden { // not only a slow answer: the retention was raised after redeliver had read it
		v.expires = time.Time{}
	}
}

// keepUntil makes heartbeats hide the message beyond due.
func (v *visibility) keepUntil(due time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.due = due
}

func (v *visibility) receiptHandle() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.receipt
}

// maxHiddenUntil returns the latest time until which SQS hides the message.
func (v *visibility) maxHiddenUntil() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.maxHiddenUntilLocked()
}

func (v *visibility) maxHiddenUntilLocked() time.Time {
	end := v.receivedAt.Add(maxVisibility)
	if !v.expires.IsZero() && v.expires.Before(end) {
		return v.expires
	}
	return end
}

// checkHiding reports whether others may receive the message by now, and whether it needs a heartbeat. It needs one when
// 40% of its timeout is over, or if the timeout ends before due.
func (v *visibility) checkHiding(now time.Time, timeout time.Duration) (expired, extend bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	extend = v.until.Sub(now) < min(v.hiddenFor, timeout)*6/10 || v.until.Before(v.due)
	return !v.until.After(now), extend && v.until.Before(v.maxHiddenUntilLocked().Add(-time.Second))
}

// extension returns the receipt and how long to hide the message: until timeout after now or a later due.
func (v *visibility) extension(now time.Time, timeout time.Duration) (receipt string, seconds int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := math.Ceil((timeout + max(0, v.due.Sub(now))).Seconds())
	n = min(n, max(0, math.Floor(v.receivedAt.Add(maxVisibility).Sub(now).Seconds())-1))
	return v.receipt, int32(n)
}

// visibilityChange is one request to hide a message for longer, or to return it.
type visibilityChange struct {
	v        *visibility
	returned bool
	at       time.Time // when, if later than now
	done     func(error)
}

// visibilityChanger changes the visibility timeouts of one queue's messages.
type visibilityChanger struct {
	queue             *api.Queue
	visibilityTimeout time.Duration // of a heartbeat
	requestTimeout    time.Duration
	batches           *api.Batcher[*visibilityChange]
}

const (
	visibilityLinger  = 5 * time.Millisecond
	visibilityWorkers = 8
)

func newVisibilityChanger(q *api.Queue, visibilityTimeout, requestTimeout time.Duration) *visibilityChanger {
	h := &visibilityChanger{queue: q, visibilityTimeout: visibilityTimeout, requestTimeout: requestTimeout}
	h.batches = api.NewBatcher(visibilityLinger, visibilityWorkers, 0, nil, h.changeBatch)
	return h
}

// extend hides a message for longer, and calls done with the result from another goroutine. While a change is under way
// it does nothing, and does not call done.
func (h *visibilityChanger) extend(v *visibility, done func(error)) {
	h.requestChange(&visibilityChange{v: v, done: done}, false)
}

// hideUntil hides a message until due and for the visibility timeout after it, so that a crash does not make the
// message early.
func (h *visibilityChanger) hideUntil(v *visibility, due time.Time, done func(error)) {
	v.keepUntil(due)
	h.requestChange(&visibilityChange{v: v, done: done}, true)
}

// makeVisible makes a message visible at a time, or now.
func (h *visibilityChanger) makeVisible(v *visibility, at time.Time, done func(error)) {
	h.requestChange(&visibilityChange{v: v, returned: true, at: at, done: done}, true)
}

func (h *visibilityChanger) requestChange(c *visibilityChange, queueIfBusy bool) {
	c.v.mu.Lock()
	busy := c.v.changing
	var replaced *visibilityChange
	if busy && queueIfBusy {
		replaced, c.v.next = c.v.next, c
	}
	c.v.changing = true
	c.v.mu.Unlock()
	if replaced != nil {
		replaced.done(errReplaced)
	}
	if !busy {
		h.batches.Add(c)
	}
}

// finishChange reports the result of a request and starts the one that follows it.
func (h *visibilityChanger) finishChange(c *visibilityChange, err error) {
	c.v.mu.Lock()
	next := c.v.next
	c.v.next, c.v.changing = nil, next != nil
	c.v.mu.Unlock()
	c.done(err)
	if next != nil {
		h.batches.Add(next)
	}
}

var (
	// errNewReceipt does not mean that the message is lost: it came again meanwhile.
	errNewReceipt = errors.New("sqs: the message came again under another receipt")
	errReplaced   = errors.New("sqs: the message was returned meanwhile")
)

func (h *visibilityChanger) changeBatch(batch []*visibilityChange) {
	ctx, cancel := context.WithTimeout(context.Background(), h.requestTimeout)
	defer cancel()
	now := time.Now() // taken before the request, so that SQS's timeout ends later
	all := make([]api.Hiding, len(batch))
	for i, c := range batch {
		all[i].Receipt, all[i].Seconds = c.v.extension(now, h.visibilityTimeout)
		if c.returned {
			all[i].Seconds = int32(max(0, math.Ceil(c.at.Sub(now).Seconds())))
		}
	}
	results, _ := h.queue.HideReceipts(ctx, all)
	for i, c := range batch {
		c.v.mu.Lock()
		switch {
		case c.v.receipt != all[i].Receipt:
			results[i] = errNewReceipt
		case results[i] == nil:
			c.v.hiddenFor = time.Duration(all[i].Seconds) * time.Second
			c.v.until = now.Add(c.v.hiddenFor)
		}
		c.v.mu.Unlock()
		h.finishChange(c, results[i])
	}
}
