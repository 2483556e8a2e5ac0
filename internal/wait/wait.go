// Package wait waits for a duration that the end of a context cuts short.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns an error if ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
