package engine

import "sync"

// SuspectLosses counts for each suspect, by id, how often this process has lost it and has survived. A broker that counts
// deliveries counts such a loss like a crash. An adapter calls Forget when it settles a suspect. A SuspectLosses is safe
// for concurrent use; its zero value is ready.
type SuspectLosses struct {
	mu     sync.Mutex
	counts map[string]int
}

// maxLostSuspects bounds the number of remembered suspects, of which there are few.
const maxLostSuspects = 10_000

// Add counts one more loss.
func (l *SuspectLosses) Add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
	if _, known := l.counts[id]; known || len(l.counts) < maxLostSuspects {
		l.counts[id]++
	}
}

// Count returns how often a suspect was lost.
func (l *SuspectLosses) Count(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[id]
}

// Forget forgets a suspect.
func (l *SuspectLosses) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counts, id)
}
