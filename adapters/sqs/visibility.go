package sqs

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// visibility is our hold on one received message: the receipt, and until when others do not see the message.
type visibility struct {
	mu      sync.Mutex
	receipt string
	got     time.Time     // when it was received: SQS hides it 12 h from then at most
	expires time.Time     // when SQS deletes it, settled or not; zero where that is not known
	until   time.Time     // by our clock
	span    time.Duration // for which it was hidden last
	due     time.Time     // it stays hidden for longer than that

	changing bool    // a request to hide it is under way: of two at once the later need not be the last
	next     *hiding // follows that request
}

// receive sets what a receive says that hides the message for so long. The message may have come before.
func (v *visibility) receive(m *types.Message, at time.Time, hidden time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.receipt, v.got, v.until, v.span = aws.ToString(m.ReceiptHandle), at, at.Add(hidden), hidden
}

// keep has heartbeats hide the message beyond a time.
func (v *visibility) keep(due time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.due = due
}

func (v *visibility) handle() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.receipt
}

// limit is the latest until which SQS hides the message.
func (v *visibility) limit() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.limitLocked()
}

func (v *visibility) limitLocked() time.Time {
	end := v.got.Add(maxVisibility)
	if !v.expires.IsZero() && v.expires.Before(end) {
		return v.expires
	}
	return end
}

// look reports whether others may see the message by now, and whether it needs a heartbeat: before half of its time is over, or
// where it does not outlast its wait.
func (v *visibility) look(now time.Time, timeout time.Duration) (over, beat bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	beat = v.until.Sub(now) < min(v.span, timeout)*6/10 || v.until.Before(v.due)
	return !v.until.After(now), beat && v.until.Before(v.limitLocked().Add(-time.Second))
}

// extension is for how many seconds from now the message is to be hidden: for timeout behind now, or behind its due time.
func (v *visibility) extension(now time.Time, timeout time.Duration) (receipt string, seconds int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := math.Ceil((timeout + max(0, v.due.Sub(now))).Seconds())
	n = min(n, max(0, math.Floor(v.got.Add(maxVisibility).Sub(now).Seconds())-1))
	return v.receipt, int32(n)
}

// hiding is one request to hide a message for longer, or, where it is given back, no longer.
type hiding struct {
	v    *visibility
	back bool      // give it back
	at   time.Time // when, where that is later than now
	done func(error)
}

// hider changes for how long messages of one queue are hidden.
type hider struct {
	api     *sqs.Client
	queue   *queue
	hides   time.Duration // for which a heartbeat hides a message
	timeout time.Duration
	batches *batcher[*hiding]
}

const (
	hideLinger  = 5 * time.Millisecond
	hideWorkers = 8
)

func newHider(api *sqs.Client, q *queue, hides, timeout time.Duration) *hider {
	h := &hider{api: api, queue: q, hides: hides, timeout: timeout}
	h.batches = newBatcher(hideLinger, hideWorkers, 0, nil, h.write)
	return h
}

// beat hides a message for longer, unless a change of it is under way. done is called, from another goroutine, with what became
// of it.
func (h *hider) beat(v *visibility, done func(error)) {
	h.change(&hiding{v: v, done: done}, false)
}

// hide keeps a message hidden until due, and for the visibility timeout behind that: a process that dies meanwhile does not
// make it early.
func (h *hider) hide(v *visibility, due time.Time, done func(error)) {
	v.keep(due)
	h.change(&hiding{v: v, done: done}, true)
}

// giveBack lets others see a message at a time, or now.
func (h *hider) giveBack(v *visibility, at time.Time, done func(error)) {
	h.change(&hiding{v: v, back: true, at: at, done: done}, true)
}

func (h *hider) change(c *hiding, must bool) {
	c.v.mu.Lock()
	busy := c.v.changing
	var instead *hiding
	if busy && must {
		instead, c.v.next = c.v.next, c
	}
	c.v.changing = true
	c.v.mu.Unlock()
	if instead != nil {
		instead.done(errReplaced)
	}
	if !busy {
		h.batches.add(c)
	}
}

// end tells what became of a request, and begins the one that follows it.
func (h *hider) end(c *hiding, err error) {
	c.v.mu.Lock()
	next := c.v.next
	c.v.next, c.v.changing = nil, next != nil
	c.v.mu.Unlock()
	c.done(err)
	if next != nil {
		h.batches.add(next)
	}
}

var (
	// errRenewed says nothing of whether we have the message: it came again meanwhile.
	errRenewed  = errors.New("sqs: the message came again under another receipt")
	errReplaced = errors.New("sqs: the message was given back meanwhile")
)

func (h *hider) write(batch []*hiding) {
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
	defer cancel()
	now := time.Now() // before the request: what it sets ends later by SQS's clock
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &h.queue.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(batch))}
	for i, c := range batch {
		receipt, seconds := c.v.extension(now, h.hides)
		if c.back {
			seconds = int32(max(0, math.Ceil(c.at.Sub(now).Seconds())))
		}
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &receipt, VisibilityTimeout: seconds}
	}
	out, err := h.api.ChangeMessageVisibilityBatch(ctx, in)
	results := entryResults(len(batch), err, func(done func(id *string, err error)) {
		for _, f := range out.Failed {
			done(f.Id, failedEntry(f))
		}
		for _, ok := range out.Successful {
			done(ok.Id, nil)
		}
	})
	for i, c := range batch {
		c.v.mu.Lock()
		switch {
		case c.v.receipt != *in.Entries[i].ReceiptHandle:
			results[i] = errRenewed
		case results[i] == nil:
			c.v.span = time.Duration(in.Entries[i].VisibilityTimeout) * time.Second
			c.v.until = now.Add(c.v.span)
		}
		c.v.mu.Unlock()
		h.end(c, results[i])
	}
}

// entryResults are the results of the n entries of a request that failed as a whole with err, or whose answer names them: the
// first word about each counts, and an answer that does not mention an entry is a failure.
func entryResults(n int, err error, answer func(done func(id *string, err error))) []error {
	results := make([]error, n)
	for i := range results {
		results[i] = clean(err)
	}
	if err != nil {
		return results
	}
	told := make([]bool, n)
	answer(func(id *string, err error) {
		if i, bad := strconv.Atoi(aws.ToString(id)); bad == nil && i >= 0 && i < n && !told[i] {
			told[i], results[i] = true, err
		}
	})
	for i := range results {
		if !told[i] {
			results[i] = errUntold
		}
	}
	return results
}

var errUntold = errors.New("sqs: the answer does not mention the entry")
