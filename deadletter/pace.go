package deadletter

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/wait"
)

// pace keeps a rate. It does not make up for lost time, so that no burst follows when a slow broker recovers.
type pace struct {
	rate float64   // messages a second; 0 means no bound
	free time.Time // when the next message may go
}

// maxBatch returns how many of n messages may go at once: at most those of a quarter of a second, so that the rate is
// even.
func (p *pace) maxBatch(n int) int {
	if p.rate <= 0 {
		return n
	}
	return min(n, max(1, int(p.rate/4)))
}

// wait waits until n messages may go. It calls check at intervals, and returns its error.
func (p *pace) wait(ctx context.Context, n int, check func() error) error {
	if p.rate <= 0 || n == 0 {
		return ctx.Err()
	}
	for rest := time.Until(p.free); rest > 0; rest = time.Until(p.free) {
		if err := wait.For(ctx, min(rest, requestInterval)); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
	}
	p.free = time.Now().Add(time.Duration(min(float64(n)/p.rate*float64(time.Second), float64(redeliver.MaxWait))))
	return nil
}
