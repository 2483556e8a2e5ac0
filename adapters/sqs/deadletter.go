package sqs

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// defaultLease is how long messages of a DLQ stay hidden after their receive. A crashed process blocks the next one for
// up to twice that time.
const defaultLease = 30 * time.Second

// DeadLetterConfig names the DLQ to open. Topic is required.
type DeadLetterConfig struct {
	// Topic is the queue whose messages failed: its name, URL or ARN.
	Topic string
	// DLQ is the name, URL or ARN of the DLQ if redeliver does not fill it, but SQS (by a
	// RedrivePolicy) or Watermill (as a poison queue). Default: the DLQ of redeliver.
	DLQ string
	// Lease is how long a message that was read stays hidden if its process dies. The locks of that process then
	// block others for up to twice that time. In whole seconds, up to 10 min. Default 30 s.
	Lease time.Duration
}

const maxLease = 10 * time.Minute

// DeadLetters opens the DLQ of a queue. Both must exist. The DLQ's companion, "<dlq>-state.fifo",
// is created at the first look. Keep the client open while you use the DLQ.
func (c *Client) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	a := parseTopic(cfg.Topic)
	var ps redeliver.Problems
	checkName(&ps, "queue of topic "+strconv.Quote(limits.Cut(redeliver.Redact(cfg.Topic), 200)), a.name)
	if ps.Err() == nil {
		c.cfg.Names.check(&ps, a.name)
	}
	checkSeconds(&ps, "Lease", cfg.Lease, time.Second, maxLease)
	dead := address{name: c.cfg.Names.dlq(a.name)}
	if cfg.DLQ != "" {
		dead = parseTopic(cfg.DLQ)
		checkName(&ps, "DLQ", dead.name)
		if dead.name == a.name {
			ps.Add("DLQ", dead.name, "must not be the queue itself")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	main, err := c.findQueue(ctx, a)
	if err != nil {
		return nil, err
	}
	dlq, err := c.findQueue(ctx, dead)
	if err != nil {
		return nil, err
	}
	if p, _, ok := dlq.redrivePolicy(); ok {
		ps.Add("queue "+dlq.name, p.Target, "must have no RedrivePolicy of its own: each scan is a receive of every dead letter, and SQS would move it away")
	}
	for _, q := range []*queue{main, dlq} {
		if !q.exists {
			ps.Add("queue "+q.name, "missing", "must exist: it has never been subscribed to, or the Names differ")
		}
	}
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return deadletter.New(&deadLetters{
		client: c, main: main, dlq: dlq, lease: cfg.Lease, stateName: stateName(dlq.name), stateSemaphore: make(chan struct{}, 1),
		info: deadletter.Info{
			Broker: "sqs", DLQ: dlq.name, Origin: main.name, Group: main.name, ReplayTo: main.name,
			ReadEffect: fmt.Sprintf("each scan is a receive of every message that it passes (ApproximateReceiveCount), and hides them from others until the scan ends, or for %s if its process dies", cfg.Lease),
		},
	}), nil
}

// deadLetters is the DLQ of one queue. It implements driver.DLQ.
//
// Reading a queue of SQS hides its messages. Locks are leases. Locks and other state are one message in a queue
// beside the DLQ, see updateState.
type deadLetters struct {
	client         *Client
	main, dlq      *queue
	info           deadletter.Info
	lease          time.Duration
	stateName      string
	stateSemaphore chan struct{} // held while this process reads or writes the state

	mu       sync.Mutex
	state    *queue // nil until it exists
	sessions map[*deadSession]bool
	closed   bool
}

// Info implements [driver.DLQ].
func (q *deadLetters) Info() deadletter.Info { return q.info }

// Count implements [driver.DLQ]. SQS only estimates the number.
func (q *deadLetters) Count(ctx context.Context) (n int64, exact bool, err error) {
	_, n, err = q.client.countMessages(ctx, q.dlq)
	return n, false, err
}

// countMessages returns SQS's estimates of how many messages of a queue are visible, and how many it has.
func (c *Client) countMessages(ctx context.Context, q *queue) (visible, all int64, err error) {
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	attributes, err := c.attributesOf(ctx, q, names...)
	for i, name := range names {
		n, _ := strconv.ParseInt(attributes[string(name)], 10, 64) // 0 if there is none
		if all += n; i == 0 {
			visible = n
		}
	}
	return visible, all, err
}

// LockHolder implements [driver.DLQ].
func (q *deadLetters) LockHolder(ctx context.Context, lock string) (h deadletter.Holder, ok bool, err error) {
	state, err := q.Load(ctx)
	if err != nil {
		return h, false, err
	}
	h, ok = driver.LeaseHolder(state, lock, time.Now())
	return h, ok, nil
}

// Connect implements [driver.DLQ].
func (q *deadLetters) Connect(context.Context) (driver.Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	s := &deadSession{q: q, held: make(map[string]*heldMessage)}
	// A lock outlasts the hiding of every message that is held now, or received before the next renewal.
	s.leases = driver.NewLeases(q, 2*q.lease, driver.LeaseOptions{
		Interval: q.lease / 3, OnRenewed: s.extendHeld,
		MinDuration: func() time.Duration { return s.longestHidden() + q.lease/2 },
	})
	if q.sessions == nil {
		q.sessions = make(map[*deadSession]bool)
	}
	q.sessions[s] = true
	return s, nil
}

// Close implements [driver.DLQ]. Locks that were not released expire.
func (q *deadLetters) Close() error {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions, q.closed = nil, true
	q.mu.Unlock()
	for s := range sessions {
		s.leases.End()
	}
	return nil
}

// Retention implements [driver.DLQ]. It returns the queue's MessageRetentionPeriod, which counts from when redeliver
// wrote a message there. If SQS itself moved the message from a standard queue, it counts from the first send.
func (q *deadLetters) Retention(ctx context.Context) (time.Duration, error) {
	attributes, err := q.client.attributesOf(ctx, q.dlq, types.QueueAttributeNameMessageRetentionPeriod)
	if err != nil {
		return 0, err
	}
	text := attributes[string(types.QueueAttributeNameMessageRetentionPeriod)]
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil || seconds <= 0 {
		return 0, fmt.Errorf("sqs: %w the MessageRetentionPeriod of queue %s: %q", deadletter.ErrNotReported, q.dlq.name, text)
	}
	return time.Duration(seconds) * time.Second, nil
}

// Oldest implements [driver.DLQ]. Only CloudWatch reports it (ApproximateAgeOfOldestMessage).
func (q *deadLetters) Oldest(context.Context) (at time.Time, ok bool, err error) {
	return at, false, nil
}

// DropLimit implements [driver.DLQ]. A queue of SQS is bounded only by time.
func (q *deadLetters) DropLimit(context.Context) (string, error) { return "", nil }
