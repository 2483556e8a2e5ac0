package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redeliver/redeliver"
)

// Isolation is the request of a quarantine. Required are Who, Why and a Filter.
type Isolation struct {
	Who, Why string
	// Filter selects the messages. It must not take all.
	Filter Filter
	// Window is how many are marked at once. Default 500.
	Window int
	// Report is called with the progress. Optional.
	Report Report
}

// Quarantine marks dead letters, as a replay marks messages that were replayed too often: they stay in the DLQ,
// and a replay skips them unless it has Filter.Quarantined, which is also how they leave quarantine.
// Task.Counts.Quarantined is the number of messages that it marked. Only messages that are in the DLQ now are
// touched. It can be resumed like a replay.
//
// On RabbitMQ and SQS a DLQ has [MaxMarks] marks at most, those of replays included: a
// window that finds no room for all of its own marks none, and the task fails with
// [ErrFull]. Of a group of a FIFO queue of SQS no more is marked than SQS shows at once;
// where there may be more, the task has failed, and its note says so.
func Quarantine(ctx context.Context, q Queue, i Isolation) (Task, error) {
	i.Window = cmp.Or(i.Window, DefaultWindow)
	if err := i.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindQuarantine, i.Who, i.Why)
	t.Filter, t.Window = i.Filter, i.Window
	claim, err := q.Claim(ctx, Holder{Who: i.Who, Task: t.ID})
	if err != nil {
		return Task{}, err
	}
	return (&runner{q: q, claim: claim, task: t, report: i.Report}).run(ctx)
}

func (i *Isolation) validate() error {
	var ps redeliver.Problems
	signed(&ps, i.Who, i.Why)
	if i.Window < 1 || i.Window > maxWindow {
		ps.Add("Window", i.Window, fmt.Sprintf("must be from 1 to %d, or 0 for the default", maxWindow))
	}
	if i.Filter.All() {
		ps.Add("Filter", "empty", "takes everything; say what is meant")
	}
	return errors.Join(ps.Err(), i.Filter.check())
}
