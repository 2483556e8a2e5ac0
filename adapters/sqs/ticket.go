package sqs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/delayqueue"
)

// ticket is our hold on one received message: the receipt, and until when others
// do not see the message. It is the context under which the message's deliveries
// are: it ends when the message is lost to us.
type ticket struct {
	delayqueue.Lazy
	id    string // MessageId
	group string // MessageGroupId of a FIFO queue
	bytes int

	// The lane's: the latest entry, nil once the message is settled; and how many
	// have moved on, whose handlers may still be at the end of their answers.
	entry    *entry
	parting  int
	suspect  bool // it was moved to the suspects
	deletion deletion

	mu      sync.Mutex
	change  chan struct{} // see changing
	receipt string
	got     time.Time     // when it was received: SQS hides it 12 h from then at most
	expires time.Time     // when SQS deletes it, settled or not; zero where that is not known
	until   time.Time     // by our clock
	span    time.Duration // for which it was hidden last
	due     time.Time     // it stays hidden for longer than that
}

// init makes the ticket of a message that came and is hidden for so long.
func (t *ticket) init(lane context.Context, m *types.Message, at time.Time, hidden time.Duration, q *queue) {
	t.id, t.deletion.t = aws.ToString(m.MessageId), t
	t.receipt, t.got, t.until, t.span = aws.ToString(m.ReceiptHandle), at, at.Add(hidden), hidden
	if q.fifo { // on a standard queue a group is no order
		t.group = m.Attributes[groupID]
	}
	if begun := sent(m); q.retention > 0 && !begun.IsZero() {
		t.expires = begun.Add(q.retention)
	}
	t.Init(lane, time.Time{})
}

// changing is held while a request to hide the message is under way: of two at once
// the later need not be the last. Most messages need none.
func (t *ticket) changing() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.change == nil {
		t.change = make(chan struct{}, 1)
	}
	return t.change
}

// renew takes the receipt of a message that came again while we have it.
func (t *ticket) renew(m *types.Message, at time.Time, hidden time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.receipt, t.got, t.until, t.span = aws.ToString(m.ReceiptHandle), at, at.Add(hidden), hidden
}

// keep has heartbeats hide the message beyond a time.
func (t *ticket) keep(due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = due
}

func (t *ticket) handle() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.receipt
}

// hiddenUntil is when others may see the message again, and for how long it was
// hidden last.
func (t *ticket) hiddenUntil() (time.Time, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, t.span
}

// limit is the latest until which SQS hides the message.
func (t *ticket) limit() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.got.Add(maxVisibility)
	if !t.expires.IsZero() && t.expires.Before(end) {
		return t.expires
	}
	return end
}

// longer is for how many seconds from now the message is to be hidden: for
// visibility behind now, or behind its due time.
func (t *ticket) longer(now time.Time, visibility time.Duration) (receipt string, seconds int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := visibility
	if left := t.due.Sub(now); left > 0 {
		d += left
	}
	n := math.Ceil(d.Seconds())
	if most := math.Floor(t.got.Add(maxVisibility).Sub(now).Seconds()) - 1; n > most {
		n = max(0, most)
	}
	return t.receipt, int32(n)
}

// hiding is one request to hide a message for longer, or, where it is given back,
// no longer.
type hiding struct {
	t    *ticket
	back bool      // give it back
	at   time.Time // when, where that is later than now
	done func(error)
}

// hider changes for how long messages of one queue are hidden.
type hider struct {
	api        *sqs.Client
	queue      *queue
	visibility time.Duration
	timeout    time.Duration
	batches    *batcher[*hiding]
}

const (
	hideLinger  = 5 * time.Millisecond
	hideWorkers = 8
)

func newHider(api *sqs.Client, q *queue, visibility, timeout time.Duration) *hider {
	h := &hider{api: api, queue: q, visibility: visibility, timeout: timeout}
	h.batches = newBatcher(hideLinger, hideWorkers, 0, nil, h.write)
	return h
}

func (h *hider) write(batch []*hiding) {
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
	defer cancel()
	now := time.Now() // before the request: what it sets ends later by SQS's clock
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &h.queue.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(batch))}
	ends := make([]time.Time, len(batch))
	for i, c := range batch {
		receipt, seconds := c.t.longer(now, h.visibility)
		if c.back {
			seconds = int32(max(0, math.Ceil(c.at.Sub(now).Seconds())))
		}
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(receipt), VisibilityTimeout: seconds,
		}
		ends[i] = now.Add(time.Duration(seconds) * time.Second)
	}
	out, err := h.api.ChangeMessageVisibilityBatch(ctx, in)
	results := make([]error, len(batch))
	for i := range results {
		if results[i] = clean(err); err == nil {
			results[i] = fmt.Errorf("sqs: hiding a message of %s: the answer does not mention it", h.queue.name)
		}
	}
	if err == nil {
		each(out.Failed, out.Successful, func(i int, err error) {
			if i < len(results) {
				results[i] = err
			}
		})
	}
	for i, c := range batch {
		c.t.mu.Lock()
		switch {
		case c.t.receipt != *in.Entries[i].ReceiptHandle:
			results[i] = errRenewed
		case results[i] == nil:
			c.t.until, c.t.span = ends[i], ends[i].Sub(now)
		}
		c.t.mu.Unlock()
		c.done(results[i])
	}
}

// errRenewed says nothing of whether we have the message: it came again meanwhile.
var errRenewed = errors.New("sqs: the message came again under another receipt")

// each calls tell for every entry of a batch's answer.
func each(failed []types.BatchResultErrorEntry, successful []types.ChangeMessageVisibilityBatchResultEntry, tell func(i int, err error)) {
	for _, ok := range successful {
		if i, err := strconv.Atoi(aws.ToString(ok.Id)); err == nil && i >= 0 {
			tell(i, nil)
		}
	}
	for _, f := range failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 {
			tell(i, failedEntry(f))
		}
	}
}

// beat hides a message for longer, unless a change of it is under way. told is
// called, from another goroutine, with what became of it.
func (h *hider) beat(t *ticket, told func(error)) {
	change := t.changing()
	select {
	case change <- struct{}{}:
	default:
		return
	}
	h.batches.add(&hiding{t: t, done: func(err error) {
		<-change
		told(err)
	}})
}

// hide keeps a message hidden until due, and for the visibility timeout behind
// that: a process that dies meanwhile does not make it early.
func (h *hider) hide(ctx context.Context, t *ticket, due time.Time) error {
	change := t.changing()
	select {
	case change <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.keep(due)
	done := make(chan error, 1)
	h.batches.add(&hiding{t: t, done: func(err error) {
		<-change
		done <- err
	}})
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // it may be hidden all the same, which is no harm
		return ctx.Err()
	}
}

// giveBack lets others see a message at a time, or now.
func (h *hider) giveBack(t *ticket, at time.Time, told func(error)) {
	h.batches.add(&hiding{t: t, back: true, at: at, done: told})
}
