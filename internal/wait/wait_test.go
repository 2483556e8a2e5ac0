package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/wait"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := wait.For(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("it returned %v after %s, and not nil after a minute", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait.For(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute+time.Second {
			t.Errorf("it returned %v after %s, and not %v after a second", err, time.Since(begin)-time.Minute, context.DeadlineExceeded)
		}
		if err := wait.For(ctx, -1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a wait, the error of an ended context is %v", err)
		}
	})
}
