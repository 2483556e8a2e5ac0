package engine

import (
	"sync"
	"sync/atomic"
)

// Gate keeps a subscription from beginning messages while its group is paused, and while a message cannot be written to its next
// place: more attempts would only cause more such messages. The zero Gate is open. It is safe for concurrent use.
type Gate struct {
	closed atomic.Bool // closeCount > 0. Lanes read it for every message

	mu         sync.Mutex
	closeCount int           // unwritten messages, and one for a pause
	opened     chan struct{} // closed when the gate is open
	onOpen     wakes         // called when the gate opens
}

// Close closes the gate for one message or pause.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeCount++; g.closeCount == 1 {
		g.opened = make(chan struct{})
		g.closed.Store(true)
	}
}

// Open undoes one Close.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closeCount--; g.closeCount == 0 {
		close(g.opened)
		g.closed.Store(false)
		g.onOpen.wake()
	}
}

// Closed reports whether nothing may begin.
func (g *Gate) Closed() bool { return g.closed.Load() }

// Opened returns a channel that is closed once the gate is open.
func (g *Gate) Opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
		close(g.opened)
	}
	return g.opened
}
