package delayqueue

import (
	"sync"
	"sync/atomic"
)

// Gate holds back a subscription's intake while a message that must go on finds
// no broker to take it: running more handlers would only make more of them. The
// zero Gate is open. It is safe for concurrent use.
type Gate struct {
	closed atomic.Bool
	mu     sync.Mutex
	stuck  int
	opened chan struct{}
}

// Close shuts the gate for one message; changed tells whether it was open.
func (g *Gate) Close() (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuck++
	if g.stuck > 1 {
		return false
	}
	g.opened = make(chan struct{})
	g.closed.Store(true)
	return true
}

// Open takes one Close back; changed tells whether the gate is open now.
func (g *Gate) Open() (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuck--
	if g.stuck > 0 {
		return false
	}
	g.closed.Store(false)
	close(g.opened)
	return true
}

// Closed tells whether the intake must wait.
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
