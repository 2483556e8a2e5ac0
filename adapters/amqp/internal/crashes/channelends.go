package crashes

import "sync"

// ChannelEnds counts for each suspect, by id, how often this process has seen its channel end, because the broker counts
// that like a crash. It forgets settled suspects. It is safe for concurrent use.
type ChannelEnds struct {
	mu     sync.Mutex
	counts map[string]int
}

// maxOutlived bounds the number of remembered suspects, of which there are few.
const maxOutlived = 10_000

func (o *ChannelEnds) Add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make(map[string]int)
	}
	if _, known := o.counts[id]; known || len(o.counts) < maxOutlived {
		o.counts[id]++
	}
}

func (o *ChannelEnds) Of(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[id]
}

func (o *ChannelEnds) Settled(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.counts, id)
}
