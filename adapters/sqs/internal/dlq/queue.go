package dlq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// Options configure how to work on a DLQ.
type Options struct {
	Main, DLQ      *api.Queue    // both exist
	Lease          time.Duration // how long messages stay hidden after their receive
	Keys           wire.Keys
	SendTimeout    time.Duration
	NoProvisioning bool
}

// Queue is the DLQ of one queue. It implements driver.DLQ.
type Queue struct {
	Options

	info      deadletter.Info
	state     *api.Queue
	semaphore chan struct{}   // held while this process uses state
	open      context.Context // ends with the DLQ
	end       context.CancelFunc
}

// Open opens a DLQ. It sends no request.
func Open(opt Options) *Queue {
	q := &Queue{
		Options: opt, semaphore: make(chan struct{}, 1),
		state: &api.Queue{API: opt.DLQ.API, Name: StateName(opt.DLQ.Name), FIFO: true},
		info: deadletter.Info{
			Broker: "sqs", DLQ: opt.DLQ.Name, Origin: opt.Main.Name, Group: opt.Main.Name, ReplayTo: opt.Main.Name,
			ReadEffect: fmt.Sprintf("each scan is a receive of every message that it passes (ApproximateReceiveCount), and hides them from others until the scan ends, or for %s if its process dies", opt.Lease),
		},
	}
	q.open, q.end = context.WithCancel(context.Background())
	return q
}

// Info implements [driver.DLQ].
func (q *Queue) Info() deadletter.Info { return q.info }

// Count implements [driver.DLQ]. SQS only estimates the number.
func (q *Queue) Count(ctx context.Context) (n int64, exact bool, err error) {
	counts, err := q.DLQ.Count(ctx)
	return counts.All(), false, err
}

// LockHolder implements [driver.DLQ].
func (q *Queue) LockHolder(ctx context.Context, lock string) (deadletter.Holder, bool, error) {
	return driver.LeaseHolder(ctx, q, lock)
}

// Connect implements [driver.DLQ].
func (q *Queue) Connect(context.Context) (driver.Session, error) {
	if q.open.Err() != nil {
		return nil, api.ErrClosed
	}
	s := &session{q: q, held: make(map[string]*heldMessage)}
	// A lock outlasts the hiding of every message that is held now, or received before the next renewal.
	s.Leases = driver.NewLeases(q.open, q, 2*q.Lease, driver.LeaseOptions{
		Interval: q.Lease / 3, OnRenewed: s.extendHeld,
		MinDuration: func() time.Duration { return s.longestHidden() + q.Lease/2 },
	})
	return s, nil
}

// Close implements [driver.DLQ]. Locks that were not released expire.
func (q *Queue) Close() error {
	q.end()
	return nil
}

// Retention implements [driver.DLQ]. It returns the queue's MessageRetentionPeriod, which counts from when redeliver
// wrote a message there. If SQS itself moved the message from a standard queue, it counts from the first send.
func (q *Queue) Retention(ctx context.Context) (time.Duration, error) {
	attributes, err := q.DLQ.ReadAttributes(ctx, types.QueueAttributeNameMessageRetentionPeriod)
	if err != nil {
		return 0, err
	}
	text := attributes[string(types.QueueAttributeNameMessageRetentionPeriod)]
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil || seconds <= 0 {
		return 0, fmt.Errorf("sqs: the MessageRetentionPeriod of queue %s is %q: %w", q.DLQ.Name, text, deadletter.ErrNotReported)
	}
	return time.Duration(seconds) * time.Second, nil
}

// Oldest implements [driver.DLQ]. Only CloudWatch reports it (ApproximateAgeOfOldestMessage).
func (q *Queue) Oldest(context.Context) (at time.Time, ok bool, err error) {
	return at, false, nil
}

// DropLimit implements [driver.DLQ]. A queue of SQS is bounded only by time.
func (q *Queue) DropLimit(context.Context) (string, error) { return "", nil }
