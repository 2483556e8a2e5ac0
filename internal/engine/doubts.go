package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver/internal/driver"
)

// doubts finds out whether a doubtful error concerns one message or all: it counts what
// others write to the same place. The zero doubts is ready.
type doubts struct {
	some   atomic.Bool // whether there are any: else a write has nothing to note
	mu     sync.Mutex
	places map[string]*doubt
}

// doubt is a place to which messages cannot be written, and nobody knows why.
type doubt struct {
	messages int
	writes   int // of other messages, since the first of them
	failures int // since the last write
}

// doubtfulWrite is one message's part in a doubt.
type doubtfulWrite struct {
	where     string // empty for none
	writes    int    // of others, at its last try
	overtaken int    // tries between which others were written
}

// minOvertaken so many times others were written and a message was not, again, before its
// doubtful error is a refusal.
const minOvertaken = 3

// addWrite notes that a message was written to a place.
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

// classify returns err, or, where it is doubtful and concerns this message alone, a refusal.
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
		return fmt.Errorf("%w, and takes others: %w", driver.ErrRefused, err)
	}
	return err
}

// forget ends a message's part in a doubt.
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

// concernsAll reports whether an error of a write to a place is an outage, as far as is known.
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
