package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redeliver/redeliver"
)

// Isolation is what is asked of a quarantine. Who, Why and a Filter are required.
type Isolation struct {
	Who, Why string
	// Filter says which messages. It must not take all.
	Filter Filter
	// Window is how many are marked at once. Default 500.
	Window int
	// Report is told how it goes. Default: nobody is.
	Report Report
}

// Quarantine marks dead letters, as a replay marks what was replayed too often: they
// stay in the DLQ, and a replay passes them over unless its Filter.Quarantined says
// otherwise, which is also how they come out of it. Task.Counts.Quarantined says how many
// were marked, those not counted that were before. Only what lies there now is touched.
// It can be resumed like a replay.
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
