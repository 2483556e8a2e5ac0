package amqp

import "sync"

// pauses counts the messages of a lane that wait in place: no handler of theirs runs,
// and none begins once it is stopped. It is safe for concurrent use.
type pauses struct {
	mu      sync.Mutex
	n       int
	stopped bool
}

func (p *pauses) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
}

// end is false, and the message waits on, when the lane was stopped.
func (p *pauses) end(e *entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.n--
	e.sits.Store(false)
	return true
}

func (p *pauses) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

func (p *pauses) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}
