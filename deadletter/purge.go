package deadletter

import (
	"cmp"
	"context"
	"errors"

	"github.com/redeliver/redeliver/internal/check"
)

// PurgeOptions configures [Purge]. It requires Who and Why, and a Filter or Everything.
type PurgeOptions struct {
	Who, Why string
	// Filter selects the messages to remove.
	Filter Filter
	// Everything must be set for a filter that matches all messages.
	Everything bool
	// Expect, if it is not 0, is the number of messages that the caller has seen. If more match
	// now, nothing is removed. Messages that arrive during the purge, by their writer's clock, are not
	// removed. The purge never removes more than Expect.
	Expect int64
	// Window is the number of messages that are removed at once. Default 500.
	Window int
	// Report is called with the progress. Optional.
	Report Report
}

// ErrTooMany marks a purge that would have removed more than was expected.
var ErrTooMany = errors.New("the filter matches more than was expected; nothing was removed")

// Purge removes dead letters for good. Task.Counts.Purged is their number. It removes only messages
// that are in the DLQ now. It can be resumed like a replay.
func Purge(ctx context.Context, q Queue, p PurgeOptions) (Task, error) {
	p.Window = cmp.Or(p.Window, DefaultWindow)
	if err := p.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindPurge, p.Who, p.Why)
	t.Filter, t.Window, t.Expect = p.Filter, p.Window, p.Expect
	return (&runner{q: q, task: t, report: p.Report}).start(ctx)
}

// DryRunPurge returns what Purge would remove: Forecast.Matched messages. It changes nothing, and needs no claim, Who or
// Why. On Kafka it reads no messages if the filter has only positions, or matches everything.
func DryRunPurge(ctx context.Context, q Queue, p PurgeOptions) (Forecast, error) {
	if err := p.Filter.check(); err != nil {
		return Forecast{}, err
	}
	found, err := locate(ctx, q, &p.Filter)
	if err != nil {
		return Forecast{}, err
	}
	if found.Messages == nil {
		return DryRun(ctx, q, ReplayOptions{Filter: p.Filter})
	}
	f := Forecast{ReplayTo: q.Info().ReplayTo, About: !found.Exact}
	for range found.Messages {
		f.Matched++
	}
	f.Scanned = f.Matched
	return f, nil
}

func (p *PurgeOptions) validate() error {
	var ps check.Problems
	checkWhoWhy(&ps, p.Who, p.Why)
	ps.CheckCount("Window", p.Window, 1, maxWindow)
	if p.Filter.All() && !p.Everything {
		ps.Add("Filter", "empty", "matches everything: narrow it, or set Everything")
	}
	if p.Expect < 0 {
		ps.Add("Expect", p.Expect, "must be positive, or 0 for no limit")
	}
	return errors.Join(ps.Err(), p.Filter.check())
}
