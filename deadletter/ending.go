package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxFinish bounds each step of the work for a task after its context has ended: the runner ends its calls to the broker, records
// their outcome, and releases the claim.
const maxFinish = 10 * time.Second

// finishContext returns a context that ends maxFinish after ctx. Messages are sent with it: when the caller stops the task, a
// message that is being sent is still confirmed and recorded, so the next runner does not send it again.
func finishContext(ctx context.Context) (long context.Context, end context.CancelFunc) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(maxFinish):
			cancel()
		case <-long.Done():
		}
	})
	return long, func() {
		stop()
		cancel()
	}
}

// ending is the reason why a task ends before its last message.
type ending struct {
	status Status
	note   string
}

func (e *ending) Error() string { return string(e.status) + ": " + e.note }

// conclude records how a task has ended, and releases the claim, even after ctx has ended. err is why the task ended, nil if it is
// done. An ending sets the status of the task, and is not returned.
func conclude(ctx context.Context, claim Claim, t *Task, report Report, err error) error {
	var e *ending
	switch {
	case err == nil:
		t.Status, t.Settling = StatusDone, nil
	case errors.As(err, &e):
		t.Status, t.Note, err = e.status, e.note, nil
	case errors.Is(err, ErrClaimLost):
		t.Status, t.Note = StatusInterrupted, err.Error()
	case ctx.Err() != nil && t.Kind.fixed() == "":
		t.Status, t.Note = StatusPaused, fmt.Sprintf("its runner was stopped: %v", context.Cause(ctx))
	default:
		t.Status, t.Note = StatusFailed, err.Error()
	}
	t.Updated = now()
	if !t.Unfinished() {
		t.Ended = t.Updated
	}
	if !errors.Is(err, ErrClaimLost) {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
		defer cancel()
		if bad := claim.Save(last, *t); bad != nil {
			err = errors.Join(err, bad)
		} else if report.Progress != nil {
			report.Progress(*t)
		}
	}
	if released := finish(ctx, claim.Release); err == nil {
		err = released
	}
	return err
}
