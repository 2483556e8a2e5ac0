package observed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// DefaultTimeout bounds what one look asks of one DLQ.
const DefaultTimeout = 5 * time.Second

// dear is how long an answer is used that is not asked for at each look: on RabbitMQ and
// SQS it takes what others wait for.
const dear = 30 * time.Second

// DLQ is a DLQ that is looked at again and again. Make it with [DLQs]. It is safe for
// concurrent use.
type DLQ struct {
	Info deadletter.Info

	queue deadletter.Queue
	mu    sync.Mutex
	asked time.Time
	known Known
}

// Look is what is in a DLQ.
type Look struct {
	Messages int64
	Exact    bool // the broker does not only estimate it
	// Age is how long the oldest has lain there, where Aged is true.
	Age  time.Duration
	Aged bool
	Known
}

// Known is what is not asked for at each look. It must not be changed.
type Known struct {
	Open   map[Sort]int   // tasks that run or can be resumed
	Became map[Fate]int64 // messages of all tasks that are recorded
	Keeps  time.Duration  // how long the broker keeps a message; 0: no limit, or unknown
}

// Sort is a sort of tasks.
type Sort struct {
	Kind   deadletter.Kind
	Status deadletter.Status
}

// Fate is what became of messages in tasks of a kind.
type Fate struct {
	Kind    deadletter.Kind
	Outcome string
}

// DLQs are queues to be looked at. One may not be among them twice.
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

// Look asks the broker, for as long as timeout. Where it does not report age or retention,
// only they are not there.
func (q *DLQ) Look(ctx context.Context, timeout time.Duration) (l Look, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if l.Messages, l.Exact, err = q.queue.Count(ctx); err != nil {
		return Look{}, err
	}
	if l.Known, err = q.ask(ctx); err != nil {
		return Look{}, err
	}
	if at, ok, err := q.queue.Oldest(ctx); err == nil && ok {
		l.Age, l.Aged = max(0, time.Since(at)), true
	}
	return l, nil
}

// ask asks for what is dear, unless that is known.
func (q *DLQ) ask(ctx context.Context) (Known, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.asked.IsZero() && time.Since(q.asked) < dear {
		return q.known, nil
	}
	all, err := deadletter.History(ctx, q.queue)
	if err != nil {
		return Known{}, err
	}
	now := Known{Open: make(map[Sort]int), Became: make(map[Fate]int64)}
	for i := range all {
		t := &all[i]
		if t.Open() {
			now.Open[Sort{t.Kind, t.Status}]++
		}
		for outcome, n := range map[string]int64{
			"replayed": t.Counts.Replayed, "edited": t.Counts.Edited, "purged": t.Counts.Purged, "imported": t.Counts.Imported,
			"quarantined": t.Counts.Quarantined, "refused": t.Counts.Refused, "came_back": t.Counts.CameBack,
		} {
			if n > 0 {
				now.Became[Fate{t.Kind, outcome}] += n
			}
		}
	}
	// A client without that right still reports everything else.
	if keeps, err := q.queue.Retention(ctx); err == nil {
		now.Keeps = keeps
	}
	q.known, q.asked = now, time.Now()
	return now, nil
}
