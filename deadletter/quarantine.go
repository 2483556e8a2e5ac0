package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redeliver/redeliver"
)

// QuarantineOptions configures [Quarantine]. Who, Why and a Filter are required.
type QuarantineOptions struct {
	Who, Why string
	// Filter selects the messages. It must not match all.
	Filter Filter
	// Window is the number of messages that are marked at once. Default 500.
	Window int
	// Report is called with the progress. Optional.
	Report Report
}

// Quarantine marks dead letters, as a replay marks messages that were replayed too often. They stay
// in the DLQ, and a replay skips them unless its Filter.Quarantined is set; such a replay ends their
// quarantine. Task.Counts.Quarantined is the number of messages that were marked. Quarantine marks
// only messages that are in the DLQ now. It can be resumed like a replay.
//
// On RabbitMQ and SQS a DLQ has at most MaxMarks marks, those of replays included. If the marks of a
// window do not all fit, none of them is written, and the task fails with ErrStateFull. In a group of
// a FIFO queue of SQS, only as many messages can be marked as SQS shows at once. If there may be more,
// the task fails, and its note says so.
func Quarantine(ctx context.Context, q Queue, i QuarantineOptions) (Task, error) {
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

func (i *QuarantineOptions) validate() error {
	var ps redeliver.Problems
	checkSigned(&ps, i.Who, i.Why)
	if i.Window < 1 || i.Window > maxWindow {
		ps.Add("Window", i.Window, fmt.Sprintf("must be from 1 to %d, or 0 for the default", maxWindow))
	}
	if i.Filter.All() {
		ps.Add("Filter", "empty", "matches everything: narrow it")
	}
	return errors.Join(ps.Err(), i.Filter.check())
}
