package amqp

import "sync"

// channelEnds counts for each suspect, by id, how often this process has seen its channel end, because the broker counts
// that like a crash. It forgets settled suspects. It is safe for concurrent use.
type channelEnds struct {
	mu     sync.Mutex
	counts map[string]int
}

// maxOutlived bounds the number of remembered suspects, of which there are few.
const maxOutlived = 10_000

func (o *channelEnds) add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make(map[string]int)
	}
	if _, known := o.counts[id]; known || len(o.counts) < maxOutlived {
		o.counts[id]++
	}
}

func (o *channelEnds) of(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[id]
}

func (o *channelEnds) settled(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.counts, id)
}
