package delayqueue

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// Resumer is a [Mover] that is told when its message waits in place. It may let go
// meanwhile of what is for messages whose handlers run.
type Resumer interface {
	// Waits is told that the message runs again under st, when that is due, and
	// no handler of it until then.
	Waits(st *redeliver.State)
	// Resumes is asked when it is due. It may block until there is room, and is false
	// when the message was lost to this process; then lost is closed.
	Resumes(lost <-chan struct{}) bool
}

// block waits in place, with everything behind the message, until it may run again.
func (d *Delivery) block(dec *redeliver.Decision, cause error) (o Outcome, next *Delivery, _ error) {
	now := time.Now()
	wait := dec.State.Due.Sub(now)
	switch longest := d.Sub.LongestBlock; {
	case longest > 0 && dec.Delay > longest && dec.Action == redeliver.Postponed: // nobody was promised how long that is
		wait = longest
		dec.Delay, dec.State.Due = wait, redeliver.CeilMilli(now.UTC().Add(wait))
	case longest == 0:
		wait = min(max(wait, redeliver.MinBlock), redeliver.MaxBlock)
		dec.Delay, dec.State.Due = wait, redeliver.CeilMilli(now.UTC().Add(wait))
	case dec.Delay > longest: // not wait: due times are rounded up
		err := &redeliver.UnschedulableError{Wait: dec.Delay, Max: longest}
		d.Sub.Policy.Unschedulable(dec, err)
		return Moved, nil, d.Sub.Forward(d, dec, cause)
	}
	d.decided(dec, cause)
	d.Sub.written(dec, d.Sub.Origin, cause)
	if !d.sitOut(&dec.State) {
		d.Sub.abandoned(d, cause)
		return Moved, nil, fmt.Errorf("%w: %w", ErrAbandoned, cause)
	}
	return Again, d.After(dec.State), nil
}

// sitOut returns when st is due and the handler may run, or, with false, when the
// message is lost to this process.
func (d *Delivery) sitOut(st *redeliver.State) bool {
	w, _ := d.root().Mover.(Resumer)
	t := &d.Sub.Throttle
	t.endProbe(d)
	d.Sub.loads.sitting.Add(1)
	defer d.Sub.loads.sitting.Add(-1)
	if w != nil {
		w.Waits(st)
	}
	for wait := time.Until(st.Due); wait > 0; wait = time.Until(st.Due) { // again, where the clock was set back
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.lost():
			timer.Stop()
			return false
		}
	}
	if !t.resume(d) {
		return false
	}
	if d.Lost() || w != nil && !w.Resumes(d.lost()) {
		t.endProbe(d)
		return false
	}
	return true
}
