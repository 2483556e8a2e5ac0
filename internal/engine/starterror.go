package engine

import (
	"context"
	"errors"

	"github.com/redeliver/redeliver"
)

// StartError returns the error of a Consume that could not begin, or nil if its context was cancelled meanwhile: a service that is
// stopped while it starts has not failed. A context whose deadline is over may hide a broker that does not answer.
func StartError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, redeliver.ErrConfig) {
		return nil
	}
	return err
}
