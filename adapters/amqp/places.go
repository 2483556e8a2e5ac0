package amqp

import (
	"sync"

	"github.com/redeliver/redeliver"
)

// places is what this process knows of messages that have failed and keep their
// place in their queue: their headers cannot tell, because nobody has written them
// anew. It is in memory, for what comes back to this process. The zero value is
// empty, and safe for concurrent use.
type places struct {
	mu     sync.Mutex
	states map[spot]*redeliver.State
}

// spot is a message in its queue.
type spot struct{ queue, id string }

// placesMost is how many messages are known; above that all are forgotten, and begin
// anew. There are hardly more than in hand.
const placesMost = 200_000

func (p *places) put(queue string, st *redeliver.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.states == nil || len(p.states) >= placesMost {
		p.states = make(map[spot]*redeliver.State)
	}
	p.states[spot{queue, st.ID}] = st
}

// take returns what is known of a message that came back, and forgets it: another
// one may have the same id.
func (p *places) take(queue, id string) *redeliver.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := spot{queue, id}
	st := p.states[at]
	delete(p.states, at)
	return st
}
