package delayqueue

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver"
)

// ErrRefused marks the error of a write that concerns this one message, however often it
// is tried: the message is too large for the topic, say. A message that its level refuses
// goes to the DLQ, unschedulable. One that the DLQ refuses goes there without its body, or
// in parts, where its Record is [Truncatable].
var ErrRefused = errors.New("the broker refuses this message")

// ErrDoubtful marks the error of a write of which the adapter does not know whether it
// concerns this one message or all. It is taken for [ErrRefused] once other messages have
// been written to the same place between several tries of this one, and is an outage
// otherwise.
var ErrDoubtful = errors.New("the broker refuses this message, or all")

// Truncatable is a Record that can be written without its body: where State.Truncated is
// set, an adapter whose records are leaves out the body, and all headers but redeliver's, or
// writes the message in parts.
type Truncatable interface {
	Record
	// Body is the body as it was published.
	Body() []byte
}

// PersistDecision writes d to where dec says and returns when the broker has confirmed
// that, as [Subscription.Persist] does: to the DLQ where dec's action is DeadLetter, else
// by onward, or by the Scheduler where onward is nil. A refusal concerns this one message.
// What is refused elsewhere goes to the DLQ, and dec says so afterwards; what the DLQ
// refuses goes there without its body.
func (s *Subscription) PersistDecision(d *Delivery, dec *redeliver.Decision, onward func(context.Context) (string, error)) (string, error) {
	m := &move{s: s, d: d, dec: dec, onward: onward}
	defer s.doubts.settle(&m.trial)
	return s.Persist(d, &dec.State, m.write)
}

// move is one message on its way to where it waits or to the DLQ.
type move struct {
	s      *Subscription
	d      *Delivery
	dec    *redeliver.Decision
	onward func(context.Context) (string, error)
	trial  trial
}

// write tries once, and goes on to the next place where the message is refused.
func (m *move) write(ctx context.Context) (string, error) {
	for {
		buries := m.dec.Action == redeliver.DeadLetter
		where, err := m.try(ctx)
		if err == nil {
			m.s.doubts.wrote(where, &m.trial)
			return where, nil
		}
		err = m.s.doubts.judge(where, err, &m.trial)
		refused := errors.Is(err, ErrRefused)
		switch {
		case !buries && (refused || errors.Is(err, redeliver.ErrUnschedulable)):
			m.s.Policy.Unschedulable(m.dec, err)
		case buries && refused && m.dec.State.Truncated != "":
			return where, fmt.Errorf("the DLQ refuses even a message without its body: %v", err) //nolint:errorlint // It takes nothing: this is an outage.
		case buries && refused && m.truncate():
			m.s.Policy.Unschedulable(m.dec, err)
		default:
			return where, err
		}
	}
}

func (m *move) try(ctx context.Context) (string, error) {
	switch {
	case m.dec.Action == redeliver.DeadLetter:
		return m.s.DeadLetters.DeadLetter(ctx, m.d, &m.dec.State)
	case m.onward != nil:
		return m.onward(ctx)
	default:
		return m.s.Scheduler.Schedule(ctx, m.d, &m.dec.State)
	}
}

// truncate says of the body that is left out what it was.
func (m *move) truncate() bool {
	rec, ok := m.d.Record.(Truncatable)
	if ok {
		body := rec.Body()
		m.dec.State.Truncated = fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256(body))
	}
	return ok
}

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

// trial is one message's part in a doubt.
type trial struct {
	where  string // empty for none
	writes int    // of others, at its last try
	passed int    // tries between which others were written
}

// minPassed so many times others were written and a message was not, again, before its
// doubtful error is a refusal.
const minPassed = 3

// wrote notes that a message was written to a place.
func (ds *doubts) wrote(where string, t *trial) {
	if !ds.some.Load() {
		return
	}
	ds.settle(t)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.places[where]; d != nil {
		d.writes++
		d.failures = 0
	}
}

// judge returns err, or, where it is doubtful and concerns this message alone, a refusal.
func (ds *doubts) judge(where string, err error, t *trial) error {
	doubtful := errors.Is(err, ErrDoubtful)
	if t.where != "" && (!doubtful || t.where != where) {
		ds.settle(t)
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
		*t = trial{where: where, writes: d.writes}
		d.messages++
	case d.writes > t.writes:
		t.writes = d.writes
		t.passed++
	}
	if t.passed >= minPassed {
		return fmt.Errorf("%w, and takes others: %w", ErrRefused, err)
	}
	return err
}

// settle ends a message's part in a doubt.
func (ds *doubts) settle(t *trial) {
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
	*t = trial{}
}

// concernsAll reports whether an error of a write to a place is an outage, as far as is known.
func (ds *doubts) concernsAll(where string, err error) bool {
	switch {
	case errors.Is(err, ErrRefused):
		return false
	case !errors.Is(err, ErrDoubtful):
		return true
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.places[where]
	return d == nil || d.messages > 1 && d.failures > d.messages
}
