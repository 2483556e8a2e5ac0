package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxFinish bounds each step that a runner still takes after its context has ended: it finishes its calls to the
// broker, records their outcome, and releases the claim. Messages are sent with a context of wait.Longer. If the caller
// stops the task while a message is being sent, the message is still confirmed and recorded, so the next runner does
// not send it again.
const maxFinish = 10 * time.Second

// recordContext returns a context for recording what was done, even after ctx has ended. It lasts for maxFinish.
func recordContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
}

// finish calls end, which ends a claim or a session, even after ctx has ended. If the broker does not answer within maxFinish, the
// locks expire later.
func finish(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := recordContext(ctx)
	defer cancel()
	return end(ctx)
}

// ending is the reason why a task ends before its last message.
type ending struct {
	status Status
	note   string
}

func (e *ending) Error() string { return string(e.status) + ": " + e.note }

// end sets the status and the note with which the task's runner ends.
func (t *Task) end(s Status, note string) {
	t.Status, t.Note, t.Updated = s, note, now()
	if !t.Unfinished() {
		t.Ended = t.Updated
	}
}

// conclude records how a task has ended, and releases the claim, even after ctx has ended. err is why the task ended, nil if it is
// done. An ending sets the status of the task, and is not returned.
func conclude(ctx context.Context, claim Claim, t *Task, report Report, err error) error {
	var e *ending
	switch {
	case err == nil:
		t.Settling = nil
		t.end(StatusDone, t.Note)
	case errors.As(err, &e):
		t.end(e.status, e.note)
		err = nil
	case errors.Is(err, ErrClaimLost):
		t.end(StatusInterrupted, err.Error())
	case ctx.Err() != nil && t.Kind.whyNotResumable() == "":
		t.end(StatusPaused, fmt.Sprintf("its runner was stopped: %v", context.Cause(ctx)))
	default:
		t.end(StatusFailed, err.Error())
	}
	if !errors.Is(err, ErrClaimLost) {
		save := func(ctx context.Context) error { return claim.Save(ctx, *t) }
		if failed := finish(ctx, save); failed != nil {
			err = errors.Join(err, failed)
		} else if report.Progress != nil {
			report.Progress(*t)
		}
	}
	if released := finish(ctx, claim.Release); err == nil {
		err = released
	}
	return err
}
