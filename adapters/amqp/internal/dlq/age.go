package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
)

// Oldest implements [driver.DLQ]. It returns the timestamp property of the message at the head, as the management API
// reports it. The message was published then, so it came to the DLQ no earlier. RabbitMQ up to 4.0 reports it only
// for classic queues; redeliver's DLQ is a quorum queue.
func (q *Queue) Oldest(ctx context.Context) (at time.Time, ok bool, err error) {
	r, err := q.readSettings(ctx)
	if err != nil || r == nil {
		return at, false, err
	}
	n, is := r.HeadTimestamp.(json.Number)
	if !is || r.Messages != nil && *r.Messages == 0 {
		return at, false, nil
	}
	seconds, err := n.Int64()
	if err != nil || seconds <= 0 {
		return at, false, nil //nolint:nilerr // the publisher may write anything
	}
	return time.Unix(seconds, 0).UTC(), true, nil
}

// Retention implements [driver.DLQ]. It returns the lowest message-ttl of the queue's arguments and policies, as the
// management API reports them.
func (q *Queue) Retention(ctx context.Context) (time.Duration, error) {
	r, err := q.readBounds(ctx, "how long it keeps a message")
	if err != nil {
		return 0, err
	}
	low, ok := r.Lowest("message-ttl")
	if !ok {
		return 0, nil
	}
	ttl, _ := low.Duration()
	return max(ttl, time.Millisecond), nil // a TTL of 0 means at once, not never
}

// DropLimit implements [driver.DLQ]. It returns the limits of the queue's length, and settings that delete the queue
// itself.
func (q *Queue) DropLimit(ctx context.Context) (string, error) {
	r, err := q.readBounds(ctx, "whether it has a bound")
	if err != nil {
		return "", err
	}
	var bounds []string
	for _, key := range []string{"max-length", "max-length-bytes", "expires"} {
		if low, ok := r.Lowest(key); ok {
			bounds = append(bounds, low.String())
		}
	}
	if r.AutoDelete {
		bounds = append(bounds, "auto-delete")
	}
	return strings.Join(bounds, ", "), nil
}

// readBounds is readSettings for a caller that needs them. what is for the error.
func (q *Queue) readBounds(ctx context.Context, what string) (*management.QueueSettings, error) {
	r, err := q.readSettings(ctx)
	if err == nil && r == nil {
		err = fmt.Errorf("amqp: %w of %s %s, which policies may bound: see that ManagementURL is set, and of the same broker and virtual host", deadletter.ErrNotReported, q.info.DLQ, what)
	}
	return r, err
}

// readSettings returns the queue with its policies. It returns nil if there is no management API or the API does not
// list the queue.
func (q *Queue) readSettings(ctx context.Context) (*management.QueueSettings, error) {
	m := q.Management
	if m == nil {
		return nil, nil //nolint:nilnil // a missing API is no error here
	}
	found, err := m.Queues(ctx, "^"+regexp.QuoteMeta(q.info.DLQ)+"$")
	if err != nil {
		return nil, err
	}
	one, there := found[q.info.DLQ]
	if !there {
		return nil, nil //nolint:nilnil // it is seconds behind
	}
	policies, err := m.Policies(ctx)
	if err != nil {
		return nil, err
	}
	r, _ := policies.Settings(one)
	return &r, nil
}
