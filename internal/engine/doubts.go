package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver/driver"
)

// doubts finds out whether a driver.ErrDoubtful concerns one message or all: it counts the writes of other messages to the same
// place. The zero doubts is ready to use.
type doubts struct {
	some   atomic.Bool // places is not empty; otherwise a write has nothing to count
	mu     sync.Mutex
	places map[string]*doubt
}

// doubt counts what happens at a place to which writes fail with a doubtful error.
type doubt struct {
	messages int // messages that could not be written
	writes   int // writes of other messages since the first failure
	failures int // failures since the last write
}

// doubtfulWrite is a message that could not be written because of a doubtful error.
type doubtfulWrite struct {
	where     string // empty for none
	writes    int    // doubt.writes at its last try
	overtaken int    // tries that failed although another message was written since the try before
}

// minOvertaken is the value of overtaken from which a doubtful error counts as a refusal.
const minOvertaken = 3

// addWrite counts a message that was written to a place.
func (ds *doubts) addWrite(where string, t *doubtfulWrite) {
	if !ds.some.Load() {
		return
	}
	ds.forget(t)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.places[where]; d != nil {
		d.writes++
		d.failures = 0
	}
}

// classify returns err, or a refusal if err is doubtful and concerns this message alone.
func (ds *doubts) classify(where string, err error, t *doubtfulWrite) error {
	doubtful := errors.Is(err, driver.ErrDoubtful)
	if t.where != "" && (!doubtful || t.where != where) {
		ds.forget(t)
	}
	if !doubtful {
		return err
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.places[where]
	if d == nil {
		d = new(doubt)
		if ds.places == nil {
			ds.places = make(map[string]*doubt)
		}
		ds.places[where] = d
		ds.some.Store(true)
	}
	d.failures++
	switch {
	case t.where == "":
		*t = doubtfulWrite{where: where, writes: d.writes}
		d.messages++
	case d.writes > t.writes:
		t.writes = d.writes
		t.overtaken++
	}
	if t.overtaken >= minOvertaken {
		return fmt.Errorf("%w, but accepts others: %w", driver.ErrRefused, err)
	}
	return err
}

// forget removes a message from the count of its place.
func (ds *doubts) forget(t *doubtfulWrite) {
	if t.where == "" {
		return
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.places[t.where]; d.messages > 1 {
		d.messages--
	} else {
		delete(ds.places, t.where)
		ds.some.Store(len(ds.places) > 0)
	}
	*t = doubtfulWrite{}
}

// concernsAll reports whether the error of a write to a place is likely to concern all messages.
func (ds *doubts) concernsAll(where string, err error) bool {
	switch {
	case errors.Is(err, driver.ErrRefused):
		return false
	case !errors.Is(err, driver.ErrDoubtful):
		return true
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.places[where]
	return d == nil || d.messages > 1 && d.failures > d.messages
}
