package delayqueue

import "context"

// Work takes one message through its attempts, as a worker of an adapter does
// that hands messages to a handler in the broker's own form. a is a new Attempt,
// which the adapter may embed in what it keeps for the message; only a retry in
// place allocates another.
//
// ended tells whether the message ended here: Acked or Abandoned, for the
// adapter to do. Otherwise its end was told, or will be, to the delivery's Mover
// (it was written to where it waits, or to the DLQ) or to the task's Settle.
func Work(a *Attempt, d *Delivery, t Task) (how Ending, ended bool) {
	if d.Lost() { // it lay ready when its session ended, and comes back
		return Abandoned, true
	}
	root := d
	for outer := context.Context(d); ; {
		o, next, err := a.Run(outer, d, t)
		switch {
		case o == Succeeded:
			return Acked, true
		case o == Again:
			d, outer, a = next, next.Under(root), new(Attempt)
			continue
		case o == Moved && err != nil:
			return Abandoned, true // the Mover may have been told, too
		default:
			return Forwarded, false
		}
	}
}
