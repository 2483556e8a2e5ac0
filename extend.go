package redeliver

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver/internal/contextkey"
)

// ErrNotExtended is the error of [Extend].
var ErrNotExtended = errors.New("the attempt is not extended")

// Extend moves the end of the attempt that runs with ctx to d from now. It never shortens an attempt. [Policy].MaxTimeout bounds the
// whole attempt: where it allows less than d, Extend gives what it allows and returns an error. In a batch, the batch's context and
// that of each of its messages extend the whole batch.
//
// The deadline of ctx moves, too. A context that was derived from ctx with a deadline of its own, or a call that has already begun,
// may keep the earlier one: extend first, then begin the long call.
//
// All errors are ErrNotExtended: no attempt runs with ctx, or its time is over, or MaxTimeout allows less. Without a Timeout the error
// is nil. For a message of middleware.Receiver use Received.ChangeInvisible.
func Extend(ctx context.Context, d time.Duration) error {
	if attempt, ok := ctx.Value(contextkey.State{}).(interface{ Extend(d time.Duration) error }); ok {
		return attempt.Extend(d)
	}
	return ErrNotExtended
}
