package observed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// DefaultTimeout bounds the requests of one measurement of one DLQ.
const DefaultTimeout = 5 * time.Second

// maxAnswerAge is how long an answer to an expensive request is reused. On RabbitMQ and SQS such a request makes other
// readers wait.
const maxAnswerAge = 30 * time.Second

// An age that the broker does not report is read from at most maxAgeReads messages, every ageInterval.
const (
	ageInterval = time.Minute
	maxAgeReads = 100
)

// DLQ is a DLQ that is read periodically. [DLQs] returns it. It is safe for concurrent use.
type DLQ struct {
	Info deadletter.Info
	// ReadAge makes Measure read messages if the broker does not report the age of the oldest one.
	ReadAge bool

	queue deadletter.Queue

	mu        sync.Mutex
	cached    Cached
	cachedAt  time.Time
	oldest    time.Time // when the oldest message was written
	ageReadAt time.Time
}

// Measurement describes the content of a DLQ.
type Measurement struct {
	Messages int64
	Exact    bool // false if the broker only estimates the count
	// Age is the time since the oldest message was written, if HasAge is true. If it was read from messages, it is the
	// age of the oldest of the first ones.
	Age    time.Duration
	HasAge bool
	Cached
}

// Cached are values that are not requested at each measurement. They must not be changed.
type Cached struct {
	OpenTasks    map[TaskGroup]int     // tasks that run or can be resumed
	TaskMessages map[TaskOutcome]int64 // messages of all recorded tasks
	Retention    time.Duration         // how long the broker keeps a message; 0: no limit, or unknown
}

// TaskGroup is a group of tasks.
type TaskGroup struct {
	Kind   deadletter.Kind
	Status deadletter.Status
}

// TaskOutcome is an outcome of messages in tasks of a kind.
type TaskOutcome struct {
	Kind    deadletter.Kind
	Outcome string
}

// DLQs returns the DLQs of queues. It returns an error if a queue occurs twice.
func DLQs(queues []deadletter.Queue) ([]*DLQ, error) {
	var all []*DLQ
	known := make(map[deadletter.Info]bool)
	for _, q := range queues {
		info := q.Info()
		if known[info] {
			return nil, fmt.Errorf("%s of group %q is in Queues twice", info.DLQ, info.Group)
		}
		known[info] = true
		all = append(all, &DLQ{queue: q, Info: info})
	}
	return all, nil
}

// Measure asks the broker, for at most timeout. If the broker does not report age or retention, only those are missing.
func (q *DLQ) Measure(ctx context.Context, timeout time.Duration) (m Measurement, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if m.Messages, m.Exact, err = q.queue.Count(ctx); err != nil {
		return Measurement{}, err
	}
	if m.Cached, err = q.slowValues(ctx); err != nil {
		return Measurement{}, err
	}
	at, ok, err := q.queue.Oldest(ctx)
	if err == nil && !ok && m.Messages > 0 && q.ReadAge && q.Info.MaxReads == 0 {
		at = q.readOldest(ctx)
		ok = !at.IsZero()
	}
	if err == nil && ok {
		m.Age, m.HasAge = max(0, time.Since(at)), true
	}
	return m, nil
}

// readOldest returns when the oldest of the first messages was written, or zero if none could be read: another reader
// or a task may hide them.
func (q *DLQ) readOldest(ctx context.Context) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ageReadAt.IsZero() && time.Since(q.ageReadAt) < ageInterval {
		return q.oldest
	}
	q.ageReadAt, q.oldest = time.Now(), time.Time{}
	scan, err := q.queue.Scan(ctx, deadletter.FromStart)
	if err != nil {
		return q.oldest
	}
	defer func() { _ = scan.Close() }()
	for range maxAgeReads {
		_, err := scan.Next(ctx, func(m *deadletter.Message) bool {
			if !m.Time.IsZero() && (q.oldest.IsZero() || m.Time.Before(q.oldest)) {
				q.oldest = m.Time
			}
			return false // copy nothing
		})
		if err != nil { // the end, or the rest is unknown
			break
		}
	}
	return q.oldest
}

// slowValues returns the values whose requests are expensive. It requests them if they are unknown or too old.
func (q *DLQ) slowValues(ctx context.Context) (Cached, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.cachedAt.IsZero() && time.Since(q.cachedAt) < maxAnswerAge {
		return q.cached, nil
	}
	all, err := deadletter.History(ctx, q.queue)
	if err != nil {
		return Cached{}, err
	}
	c := Cached{OpenTasks: make(map[TaskGroup]int), TaskMessages: make(map[TaskOutcome]int64)}
	for i := range all {
		t := &all[i]
		if t.Unfinished() {
			c.OpenTasks[TaskGroup{t.Kind, t.Status}]++
		}
		for outcome, n := range map[string]int64{
			"replayed": t.Counts.Replayed, "edited": t.Counts.Edited, "purged": t.Counts.Purged, "imported": t.Counts.Imported,
			"skipped": t.Counts.Skipped, "refused": t.Counts.Refused, "returned": t.Counts.Returned,
		} {
			if n > 0 {
				c.TaskMessages[TaskOutcome{t.Kind, outcome}] += n
			}
		}
	}
	// A client without the right to read the retention reports everything else.
	if retention, err := q.queue.Retention(ctx); err == nil {
		c.Retention = retention
	}
	q.cached, q.cachedAt = c, time.Now()
	return c, nil
}
