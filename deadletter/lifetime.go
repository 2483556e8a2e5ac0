package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Dater is a [Queue] that can tell how long its oldest message has lain there, without
// looking at one: nothing is hidden, and no counter changes.
type Dater interface {
	// Oldest is when the oldest message that is not settled was written to the DLQ, by
	// the clock of who wrote it. ok is false where nothing lies there, or the broker
	// does not tell it. It may be called at any time.
	Oldest(ctx context.Context) (at time.Time, ok bool, err error)
}

// Keeper is a [Queue] that can tell how long its broker keeps a message.
type Keeper interface {
	// Keeps returns the retention; 0 where no message ends by its age. The error is
	// [ErrNotTold] where the broker does not say.
	Keeps(ctx context.Context) (time.Duration, error)
}

// Dropper is a [Queue] that can tell why its broker may drop a message that is not old.
type Dropper interface {
	// Drops says which bound that is, "max-length=1000 by argument"; empty for none.
	// The error is [ErrNotTold] where the broker does not say.
	Drops(ctx context.Context) (string, error)
}

// ErrNotTold marks what a broker does not tell of a DLQ.
var ErrNotTold = errors.New("the broker does not tell")

// Oldest asks a queue that is a [Dater]; of another one it is not known.
func Oldest(ctx context.Context, q Queue) (at time.Time, ok bool, err error) {
	if d, is := q.(Dater); is {
		return d.Oldest(ctx)
	}
	return at, false, nil
}

// Keeps asks a queue that is a [Keeper]; of another one the error is [ErrNotTold].
func Keeps(ctx context.Context, q Queue) (time.Duration, error) {
	if k, is := q.(Keeper); is {
		return k.Keeps(ctx)
	}
	return 0, fmt.Errorf("%w how long %s keeps a message", ErrNotTold, q.Info().DLQ)
}

// Drops asks a queue that is a [Dropper]; of another one the error is [ErrNotTold].
func Drops(ctx context.Context, q Queue) (string, error) {
	if d, is := q.(Dropper); is {
		return d.Drops(ctx)
	}
	return "", fmt.Errorf("%w whether %s has a bound", ErrNotTold, q.Info().DLQ)
}
