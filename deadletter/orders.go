package deadletter

import (
	"context"
	"time"
)

// askEvery is how often a runner checks whether somebody asked it to pause.
const askEvery = 500 * time.Millisecond

// orders are the requests to the runner of a task: from its caller, whose context ends, and from anybody else,
// through the DLQ.
type orders struct {
	told  context.Context // the caller's; its end does not break off what is under way
	claim Claim
	asked time.Time
}

// obey returns the reason why the task must end now, or nil.
func (o *orders) obey(ctx context.Context, t *Task) error {
	if err := o.told.Err(); err != nil {
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
