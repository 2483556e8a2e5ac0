package deadletter

import (
	"context"
	"time"
)

// askEvery is how often a runner looks whether it is to pause.
const askEvery = 500 * time.Millisecond

// orders are what is asked of the runner of a task: by its caller, whose context ends, and by anybody else,
// through the DLQ.
type orders struct {
	told  context.Context // of whoever started it; it breaks nothing off that is under way
	claim Claim
	asked time.Time
}

// obey is why the task ends now, where it is to.
func (o *orders) obey(ctx context.Context, t *Task) error {
	if err := o.told.Err(); err != nil {
		return err
	}
	if time.Since(o.asked) < askEvery {
		return nil
	}
	w, err := o.claim.Wanted(ctx, t.ID)
	if err != nil {
		return err
	}
	o.asked = time.Now()
	switch {
	case w == BeCancelled:
		return &ending{StatusCancelled, "as asked"}
	case w == BePaused && t.Kind.fixed() == "":
		return &ending{StatusPaused, "as asked"}
	default:
		return nil
	}
}
