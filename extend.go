package redeliver

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver/internal/contextkey"
)

// ErrNotExtended is the error of [Extend].
var ErrNotExtended = errors.New("the attempt is not extended")

// Extend moves the end of the attempt that runs with ctx to d from now. It never shortens an attempt.
// [Policy].MaxTimeout bounds the whole attempt: if it allows less than d, Extend extends the attempt as far as allowed
// and returns an error. In a batch, the batch's context and that of each of its messages extend the whole batch.
//
// The deadline of ctx moves, too. A context that was derived from ctx with its own deadline, or a call that has already
// begun, may keep the earlier one: extend first, then begin the long call.
//
// All errors are ErrNotExtended: no attempt runs with ctx, or its time is over, or MaxTimeout allows less. Without a Timeout the error
// is nil. For a message of middleware.Receiver use Received.ChangeInvisible.
func Extend(ctx context.Context, d time.Duration) error {
	if attempt, ok := ctx.Value(contextkey.State{}).(interface{ Extend(d time.Duration) error }); ok {
		return attempt.Extend(d)
	}
	return ErrNotExtended
}
