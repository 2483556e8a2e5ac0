package engine

import "sync/atomic"

// Drain counts the lanes of a subscription that drain: because a partition is revoked or the subscriber closes, they begin
// nothing new and wait for the messages in flight. Batches do not wait for more messages then. The zero Drain is ready to use.
// It is safe for concurrent use.
type Drain struct {
	lanes   atomic.Int64
	onBegin wakes // called when a lane begins to drain
}

// Begin counts a lane that begins to drain, and calls the functions of Notify.
func (d *Drain) Begin() {
	d.lanes.Add(1)
	d.onBegin.wake()
}

// End undoes one Begin.
func (d *Drain) End() { d.lanes.Add(-1) }

// Draining reports whether a Begin has had no End yet.
func (d *Drain) Draining() bool { return d.lanes.Load() > 0 }

// Notify makes every later Begin call f, which must not block.
func (d *Drain) Notify(f func()) { d.onBegin.add(f) }
