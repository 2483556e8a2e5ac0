package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A call that takes no context continues after the end of ctx. Its late result is discarded.
func TestCallWithContextReturnsAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("gone")
		for name, c := range map[string]struct {
			takes time.Duration
			err   error
			want  error
			late  int
		}{
			"in time":             {takes: time.Second},
			"in time, with error": {takes: time.Second, err: errGone, want: errGone},
			"late":                {takes: time.Minute, want: context.DeadlineExceeded, late: 7},
			"late, with error":    {takes: time.Minute, err: errGone, want: context.DeadlineExceeded},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			late := 0
			var left sync.WaitGroup
			begin := time.Now()
			made, err := callWithContext(ctx, left.Go, func() (int, error) {
				<-time.After(c.takes)
				return 7, c.err
			}, func(n int) { late += n })
			if took, want := time.Since(begin), min(c.takes, 10*time.Second); took != want || !errors.Is(err, c.want) || err == nil && made != 7 {
				t.Errorf("%s: %d, %v after %s, want %v after %s", name, made, err, took, c.want, want)
			}
			left.Wait()
			if late != c.late {
				t.Errorf("%s: %d were late, want %d", name, late, c.late)
			}
			cancel()
		}
	})
}
