package adaptertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// attempt is one run of a handler, as it was when it began.
type attempt struct {
	State        redeliver.State
	Ctx          context.Context  //nolint:containedctx // the handler's
	Msg          *message.Message // the handler's, or nil in the broker's own form; a copy of its content follows
	UUID         string
	Payload      []byte
	Metadata     message.Metadata
	Seen         Message
	Began, Ended time.Time // Ended is zero while it runs
	Process      *process
	DuringKill   bool // it began while its process was being killed: a process that is really killed would not have begun it
}

// journal records what the handlers and sinks of a test's processes saw, in order. It records nothing of a process
// after its Kill.
type journal struct {
	mu       sync.Mutex
	events   []recordedEvent
	attempts []*attempt
	news     chan struct{} // closed at each change, and replaced by another
}

// recordedEvent is an event and when it was reported.
type recordedEvent struct {
	redeliver.Event
	at time.Time
}

func newJournal() *journal { return &journal{news: make(chan struct{})} }

func (j *journal) change(what func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	what()
	close(j.news)
	j.news = make(chan struct{})
}

// await waits until ok returns true. It calls ok at each change. ids are the messages to report after a timeout, or
// none for all.
func (j *journal) await(t *testing.T, what string, ok func() bool, ids ...string) {
	t.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	for {
		j.mu.Lock()
		news := j.news
		j.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			logLines(t, j.unended(ids...))
			t.Fatalf("not within %s: %s", Timeout, what)
		}
	}
}

// ran returns the attempts of a message so far.
func (j *journal) ran(id string) []attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []attempt
	for _, a := range j.attempts {
		if a.State.ID == id {
			found = append(found, *a)
		}
	}
	return found
}

// all returns the attempts so far.
func (j *journal) all() []attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := make([]attempt, len(j.attempts))
	for i, a := range j.attempts {
		found[i] = *a
	}
	return found
}

// eventsOf returns the events of type E so far.
func eventsOf[E redeliver.Event](j *journal) []E {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []E
	for _, e := range j.events {
		if e, ok := e.Event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// awaitEvents waits for n events of type E.
func awaitEvents[E redeliver.Event](b *fixture, n int) []E {
	b.Helper()
	var found []E
	b.await("events", func() bool {
		found = eventsOf[E](b.journal)
		return len(found) >= n
	})
	return found
}

// ended returns how often each message was committed and dead-lettered.
func (j *journal) ended() (committed, dead map[string]int) {
	committed, dead = make(map[string]int), make(map[string]int)
	for _, e := range eventsOf[redeliver.Committed](j) {
		committed[e.State.ID]++
	}
	for _, e := range eventsOf[redeliver.DeadLettered](j) {
		dead[e.State.ID]++
	}
	return committed, dead
}

// numbers returns the attempts' numbers.
func numbers(as []attempt) []int {
	ns := make([]int, len(as))
	for i, a := range as {
		ns[i] = a.State.Attempt()
	}
	return ns
}

// upTo returns 1, 2, ... n.
func upTo(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i + 1
	}
	return ns
}
