package unattended

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// maxCauses bounds the causes of one run, because the history of a DLQ has 100 tasks. The next run takes others.
const maxCauses = 20

// why begins the reason of an unattended task, by which the next run knows it.
const why = "unattended"

// Options configures a run.
type Options struct {
	// Replay has the filter, the canary and so on of each task. Its Why may be empty.
	Replay  deadletter.ReplayOptions
	Between Window
	// Report is called with each task after it has ended.
	Report func(deadletter.Task)
}

// Outcome is how a run has ended without an error.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota // nothing is left that a replay may send
	Outside                // it is not the time
	Partly                 // the time is over, or somebody paused or cancelled a task
	Stopped                // a canary has stopped a task
)

// Run replays each cause that has messages with fewer than MaxReplays replays.
func Run(ctx context.Context, q deadletter.Queue, o Options) (Outcome, error) {
	end, ok := o.Between.End(time.Now())
	if !ok {
		return Outside, nil
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if !end.IsZero() {
		limited, cancel = context.WithDeadline(ctx, end)
	}
	defer cancel()
	if o.Replay.Why = strings.TrimSuffix(why+": "+o.Replay.Why, ": "); o.Replay.MaxReplays == 0 {
		o.Replay.MaxReplays = deadletter.DefaultMaxReplays
	}
	if err := cancelLeft(ctx, q, o.Replay.Who); err != nil {
		return Done, err
	}
	sum, err := deadletter.Groups(limited, q, o.Replay.Filter)
	if limited.Err() != nil && ctx.Err() == nil {
		return Partly, nil
	}
	if err != nil {
		return Done, err
	}
	outcome, n := Done, 0
	for i := range sum.Groups {
		g := &sum.Groups[i]
		if g.Replays < 0 || g.Replays >= o.Replay.MaxReplays {
			continue
		}
		if n++; n > maxCauses || g.Fingerprint == "" {
			return max(outcome, Partly), nil
		}
		one := o.Replay
		one.Filter.Fingerprints = []string{g.Fingerprint}
		t, err := deadletter.Replay(limited, q, one)
		if t.ID != "" {
			o.Report(t)
		}
		switch {
		case ctx.Err() != nil:
			return outcome, err
		case limited.Err() != nil: // the next run begins anew
			return max(outcome, Partly), cancelLeft(ctx, q, one.Who)
		case err != nil:
			return outcome, fmt.Errorf("replaying the cause %s: %w", g.Fingerprint, err)
		case t.Status == deadletter.StatusStopped:
			outcome = Stopped
		case t.Status != deadletter.StatusDone:
			return max(outcome, Partly), nil
		case t.Counts.Refused > 0:
			outcome = max(outcome, Partly)
		}
	}
	return outcome, nil
}

// cancelLeft ends the tasks of earlier runs: their processes were killed, or their canaries stopped them. The messages
// that they left are in the DLQ, and this run selects them again.
func cancelLeft(ctx context.Context, q deadletter.Queue, who string) error {
	all, err := deadletter.History(ctx, q)
	if err != nil {
		return err
	}
	for i := range all {
		t := &all[i]
		if t.Kind != deadletter.KindReplay || !t.Resumable() || t.Why != why && !strings.HasPrefix(t.Why, why+": ") {
			continue
		}
		if err := deadletter.Cancel(ctx, q, t.ID, deadletter.CancelOptions{Who: who}); err != nil {
			return err
		}
	}
	return nil
}
