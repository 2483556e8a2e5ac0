package main

import (
	"context"
	"time"
)

// steadily calls write every 5 ms for a duration, for rate messages a second in total. write gets a range of ids, from
// first to before end. Ids count from 0.
func steadily(ctx context.Context, rate int, d time.Duration, write func(first, end int) error) error {
	n := int(float64(rate) * d.Seconds())
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	began := time.Now()
	for first := 0; first < n; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if end := min(n, int(time.Since(began).Seconds()*float64(rate))); end > first {
			if err := write(first, end); err != nil {
				return err
			}
			first = end
		}
	}
	return nil
}
