package deadletter

import (
	"cmp"
	"context"
	"errors"

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
// window do not all fit, none of them is written, and the task fails with ErrStateFull. In one message
// group of an SQS FIFO queue, it marks only the messages that SQS returns in one scan. If there may be
// more, the task fails, and its note says so.
func Quarantine(ctx context.Context, q Queue, o QuarantineOptions) (Task, error) {
	o.Window = cmp.Or(o.Window, DefaultWindow)
	if err := o.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindQuarantine, o.Who, o.Why)
	t.Filter, t.Window = o.Filter, o.Window
	return (&runner{q: q, task: t, report: o.Report}).start(ctx)
}

func (o *QuarantineOptions) validate() error {
	var ps redeliver.Problems
	checkWhoWhy(&ps, o.Who, o.Why)
	ps.CheckCount("Window", o.Window, 1, maxWindow)
	if o.Filter.All() {
		ps.Add("Filter", "empty", "matches everything: narrow it")
	}
	return errors.Join(ps.Err(), o.Filter.check())
}
