package deadletter

import (
	"context"
	"time"
)

// askEvery is the interval at which a runner checks for a request to pause.
const askEvery = 500 * time.Millisecond

// stopRequests are the requests to stop a task: from its caller, whose context ends, and from other users, through the
// DLQ.
type stopRequests struct {
	callerCtx context.Context // of the caller; its end does not interrupt the calls under way
	claim     Claim
	asked     time.Time
}

// check returns the reason why the task must end now, or nil.
func (o *stopRequests) check(ctx context.Context, t *Task) error {
	if err := o.callerCtx.Err(); err != nil {
		return err
	}
	if time.Since(o.asked) < askEvery {
		return nil
	}
	w, err := o.claim.Requested(ctx, t.ID)
	if err != nil {
		return err
	}
	o.asked = time.Now()
	switch {
	case w == CancelRequest:
		return &ending{StatusCancelled, "as asked"}
	case w == PauseRequest && t.Kind.fixed() == "":
		return &ending{StatusPaused, "as asked"}
	default:
		return nil
	}
}
