package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// journal is the broker in memory, and also the store and the sink of its subscription. It records writes and events in
// order.
type journal struct {
	*broker
	// answer returns the result of a write, and may block; nil accepts every write. try counts all writes from 1.
	answer func(ctx context.Context, to string, try int) error
	// answerID is answer with the id of the message.
	answerID func(to, id string) error
	// truncates reports whether the store can leave out a body.
	truncates bool

	logMu  sync.Mutex
	log    []string
	tries  []time.Time
	wrote  []redeliver.State
	events []redeliver.Event
}

func newJournal(p redeliver.Policy) *journal {
	j := &journal{broker: newBroker(p)}
	j.sub.Sink = j
	return j
}

// start runs an engine over the journal until the test ends, or stop is called.
func (j *journal) start(t *testing.T, opt engine.Options[*record]) (stop func()) {
	t.Helper()
	opt.Store = j
	return j.run(t, opt, engine.LaneOptions[*record]{})
}

func (j *journal) Truncates() bool { return j.truncates }

func (j *journal) Write(ctx context.Context, to driver.Place, m *driver.Message[*record], st *redeliver.State, done driver.Done) {
	where := map[driver.Place]string{driver.PlaceLevel: "level", driver.PlaceTopic: "topic", driver.PlaceSuspects: "suspects", driver.PlaceDLQ: "dlq"}[to]
	j.logMu.Lock()
	j.tries = append(j.tries, time.Now())
	try, r, kept := len(j.tries), m.Record, *st
	j.logMu.Unlock()
	confirm := func() {
		j.logLine(where + " confirms")
		j.logMu.Lock()
		j.wrote = append(j.wrote, kept)
		j.logMu.Unlock()
		if to == driver.PlaceDLQ {
			j.mu.Lock()
			j.dead[r.id] = kept
			j.mu.Unlock()
		} else {
			j.in <- &record{id: r.id, key: r.key, body: r.body, state: &kept}
		}
		done.Confirmed(where, nil)
	}
	answer := j.answer
	if j.answerID != nil {
		answer = func(context.Context, string, int) error { return j.answerID(where, r.id) }
	}
	if answer == nil {
		confirm()
		return
	}
	go func() {
		if err := answer(ctx, where, try); err != nil {
			j.logLine(where + " refuses")
			done.Confirmed(where, err)
			return
		}
		confirm()
	}()
}

func (j *journal) Event(e redeliver.Event) {
	name := fmt.Sprintf("%T", e)[len("redeliver."):]
	if c, ok := e.(redeliver.SubscriptionChanged); ok {
		name = string(c.Change)
	}
	j.logMu.Lock()
	defer j.logMu.Unlock()
	j.events = append(j.events, e)
	j.log = append(j.log, name)
}

func (j *journal) logLine(line string) {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	j.log = append(j.log, line)
}

// logged returns the log so far.
func (j *journal) logged() []string {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	return slices.Clone(j.log)
}

// written returns the states written so far.
func (j *journal) written() []redeliver.State {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	return slices.Clone(j.wrote)
}

// want checks the whole log.
func (j *journal) want(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := j.logged(); !slices.Equal(got, want) {
		t.Errorf("%s:\n %q, want\n %q", name, got, want)
	}
}

// events returns all events of one kind.
func events[E redeliver.Event](j *journal) (found []E) {
	j.logMu.Lock()
	defer j.logMu.Unlock()
	for _, e := range j.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// changes returns the changes of the subscription.
func (j *journal) changes() (all []string) {
	for _, e := range events[redeliver.SubscriptionChanged](j) {
		all = append(all, string(e.Change))
	}
	return all
}
