package deadletter

import (
	"context"
	"time"
)

// askEvery is the interval at which a runner checks for requests.
const askEvery = 500 * time.Millisecond

// stopRequests checks whether a task must stop: because its caller's context has ended, or because a user of another process has
// recorded a request in the DLQ.
type stopRequests struct {
	callerCtx context.Context // its end does not interrupt calls to the broker
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
