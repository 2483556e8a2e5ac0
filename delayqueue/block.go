package delayqueue

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// block waits in place, with everything behind the message, until it may run again.
func (d *Delivery) block(dec *redeliver.Decision, cause error) (o Outcome, next *Delivery, _ error) {
	now := time.Now()
	wait := min(max(dec.State.Due.Sub(now), redeliver.MinBlock), redeliver.MaxBlock)
	dec.Delay, dec.State.Due = wait, redeliver.CeilMilli(now.UTC().Add(wait))
	d.Sub.written(dec, d.Sub.Origin, cause)
	timer := time.NewTimer(time.Until(dec.State.Due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return Again, d.After(dec.State), nil
	case <-d.lost():
		d.Sub.abandoned(d, cause)
		return Moved, nil, fmt.Errorf("%w: %w", ErrAbandoned, cause)
	}
}
