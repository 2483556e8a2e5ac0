package redeliver

import (
	"context"
	"errors"
	"time"
)

// ErrNotExtended is why [Extend] has not given an attempt the time that its handler asked for.
var ErrNotExtended = errors.New("the attempt is not extended")

// Extend gives the attempt that runs with ctx time until d from now, whatever is left of its Timeout. It never takes time
// away. [Policy].MaxTimeout bounds the whole attempt: where it allows less than d, the attempt has until then, and the error
// says so. In a batch, Extend with the batch's context or with that of one of its messages extends the whole batch.
//
// The deadline of ctx is later afterwards. A context that was derived from ctx with a deadline of its own, and a call that
// is already under way, may keep the earlier one: extend first, then begin what takes long.
//
// All errors are ErrNotExtended: no attempt runs with ctx, or its time is over, or MaxTimeout allows less. Without a Timeout
// there is nothing to extend, and the error is nil. For a message of middleware.Receiver there is
// Received.ChangeInvisible.
func Extend(ctx context.Context, d time.Duration) error {
	if attempt, ok := ctx.Value(ContextKey{}).(interface{ Extend(d time.Duration) error }); ok {
		return attempt.Extend(d)
	}
	return ErrNotExtended
}
