package redeliver

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver/internal/contextkey"
)

// ErrNotExtended is the error of [Extend].
var ErrNotExtended = errors.New("the attempt is not extended")

// Extend moves the end of the attempt that runs with ctx, and the deadline of ctx, to d from now. It never shortens an
// attempt. [Policy].MaxTimeout bounds the whole attempt: if it allows less than d, Extend extends the attempt as far as
// allowed and returns an error. In a batch, ctx is the context of the batch or of any of its messages, and Extend
// extends the whole batch.
//
// A context that was derived from ctx with a deadline of its own, or a call that has already begun, may keep the earlier deadline. So
// extend first, and then begin the long call.
//
// All errors are ErrNotExtended: no attempt runs with ctx, or its time is over, or MaxTimeout allows less than d. If the policy has no
// Timeout, Extend does nothing and returns nil. For a message of middleware.Receiver use Received.ChangeInvisible.
func Extend(ctx context.Context, d time.Duration) error {
	if attempt, ok := ctx.Value(contextkey.State{}).(interface{ Extend(d time.Duration) error }); ok {
		return attempt.Extend(d)
	}
	return ErrNotExtended
}
