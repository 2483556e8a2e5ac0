package deadletter

import (
	"context"
	"time"
)

// requestInterval is the interval at which a runner checks for requests.
const requestInterval = 500 * time.Millisecond

// stopRequests checks whether a task must stop: because its caller's context has ended, or because a user of another process has
// recorded a request in the DLQ.
type stopRequests struct {
	callerCtx context.Context // its end does not interrupt calls to the broker
	claim     Claim
	checked   time.Time
}

// check returns the reason why the task must end now, or nil.
func (s *stopRequests) check(ctx context.Context, t *Task) error {
	if err := s.callerCtx.Err(); err != nil {
		return err
	}
	if time.Since(s.checked) < requestInterval {
		return nil
	}
	r, err := s.claim.Requested(ctx, t.ID)
	if err != nil {
		return err
	}
	s.checked = time.Now()
	switch {
	case r == RequestCancel:
		return &ending{StatusCancelled, "by request"}
	case r == RequestPause && t.Kind.whyNotResumable() == "":
		return &ending{StatusPaused, "by request"}
	default:
		return nil
	}
}
