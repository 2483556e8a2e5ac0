package engine

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Drain says that a part of a subscription, a partition that is revoked or the
// whole of a subscriber that closes, delivers nothing new and waits for what is
// in flight. Whoever keeps messages back to handle several at once asks it, and
// goes on with what there is. The zero Drain is none. It is safe for concurrent use.
type Drain struct {
	parts atomic.Int64

	mu        sync.Mutex
	listeners []func()
}

// Begin is called by an adapter before it waits for handlers, End after.
func (d *Drain) Begin() {
	d.parts.Add(1)
	d.mu.Lock()
	told := slices.Clip(d.listeners)
	d.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// End takes one Begin back.
func (d *Drain) End() { d.parts.Add(-1) }

// Draining tells whether a Begin has had no End yet.
func (d *Drain) Draining() bool { return d.parts.Load() > 0 }

// Notify has every Begin call f, which must not block, after Draining has become
// true.
func (d *Drain) Notify(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners = append(d.listeners, f)
}
