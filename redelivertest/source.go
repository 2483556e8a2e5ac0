package redelivertest

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// maxPulled is how many items a reader takes from the broker at once.
const maxPulled = 1024

// source reads a queue for one Subscribe. It implements driver.Source and engine.Gater. The broker's mu guards
// some of its fields. The others belong to the lane's goroutine.
type source struct {
	*reader

	in       chan *received
	accepted int
	stopped  bool
	lane     driver.Lane[*received]
}

var (
	_ driver.Source[*received] = (*source)(nil)
	_ engine.Gater[*received]  = (*source)(nil)
)

func newSource(r *reader) *source {
	return &source{reader: r, in: make(chan *received, maxPulled)}
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *received { return s.in }

// Lost implements [driver.Source].
func (s *source) Lost() <-chan struct{} { return s.killed }

// Accept implements [driver.Source].
func (s *source) Accept(n int) {
	more := n > s.accepted
	s.accepted = n
	if more {
		s.pull()
	}
}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	s.stopped = true
	return nil
}

// wakeLocked makes the source check the broker for messages.
func (s *source) wakeLocked() {
	if s.lane != nil {
		s.lane.Post(s.pull)
	}
}

// pull takes the messages that the broker has for this reader: all waiting messages, and those of the topic that may
// begin.
func (s *source) pull() {
	b := s.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.client.killed || s.stopped { // other readers get what this one returns
		return
	}
	for _, it := range s.q.items {
		switch {
		case len(s.in) == cap(s.in):
			return // the broker wakes the source again when a message is settled
		case !it.available():
		case it.waits:
			s.takeLocked(it)
		case s.accepted > 0 && s.mayTakeLocked(it) && s.q.takeKeyLocked(it, s.reader):
			s.accepted--
			s.takeLocked(it)
		}
	}
}

// mayTakeLocked reports whether the reader may take an item of the topic. In OrderThroughRetries it takes none while an earlier message of
// the key is elsewhere.
func (s *source) mayTakeLocked(it *item) bool {
	return s.sub.Policy.Order != redeliver.OrderThroughRetries || !s.q.waitsForKeyLocked(it, func(earlier *item) bool { return earlier.owner == s.reader && !earlier.waits })
}

// takeLocked makes the reader the owner of an item.
func (s *source) takeLocked(it *item) {
	it.owner, it.run = s.reader, &delivery{}
	s.in <- &received{record: it.record, it: it, decode: s.client.cfg.Decode, suspect: it.suspect, crashes: it.crashes, noted: it.noted}
}

// Parse implements [driver.Source]. It reads the state after the user's headers, as far as it is valid, and sets when
// the message may continue.
func (s *source) Parse(m *driver.Message[*received]) error {
	rec := m.Record
	it := rec.it
	if l, locks := s.lockOf(it); locks {
		l.waits = it.waits // in OrderThroughRetries, too: a retry must not wait in the lane for one that waits for it
		m.Key = maphash.Comparable(seed, l) | 1
	}
	m.Alone = rec.suspect
	if it.waits {
		s.parseWaiting(m)
	} else {
		found := append(s.readDeadLetter(rec), rec.foreignHeaders()...)
		rec.id = rec.idOf(s.q.topic, it.offset, it.at)
		if rec.deadLetter != nil && rec.deadLetter.ID != "" {
			rec.id = rec.deadLetter.ID
		}
		if found != nil {
			s.sub.Emit(redeliver.HeadersIgnored{Topic: s.q.topic, ID: rec.id, Findings: found})
		}
		if rec.noted != nil { // it has failed and waits in its place, whatever the order is now
			st := *rec.noted
			m.State, m.Retry, m.InPlace, m.Until = &st, true, true, st.Due
		}
	}
	if rec.crashes >= s.sub.Policy.MaxCrashes && m.Step == driver.StepHandle {
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.CrashedError{Crashes: rec.crashes}
	}
	return nil
}

func (s *source) parseWaiting(m *driver.Message[*received]) {
	it := m.Record.it
	users, ours := it.split()
	stay := delayqueue.Arrive(&delayqueue.Arrival{
		Group: s.q.group, Origin: s.q.topic, Ladder: s.ladder,
		Level: it.level, Written: it.at, Jitter: s.jitter, Now: time.Now(),
	}, ours, func() string { return users.idOf(it.where, it.offset, it.at) })
	if len(stay.Findings) > 0 {
		s.sub.Emit(redeliver.HeadersIgnored{Topic: it.where, ID: stay.State.ID, Findings: stay.Findings})
	}
	s.sub.CheckPolicyOf(stay.State)
	m.Record.record, m.Record.state, m.Record.id = users, stay.State, stay.State.ID
	s.readDeadLetter(m.Record)
	stay.State.DeadLetter, stay.State.Expires = m.Record.deadLetter, m.Record.expires()
	m.Retry, m.Until, m.Place = true, stay.Until, it.where
	switch {
	case stay.Hops:
		m.Step = driver.StepHop
	case stay.Publish:
		m.Step = driver.StepPublish
	}
}

// readDeadLetter removes the block of a DLQ from a record that was read from there. The block is the state of the dead
// letter, not a part of the message's headers.
func (s *source) readDeadLetter(rec *received) []redeliver.Finding {
	rec.copied = rec.record
	users, block := rec.split()
	dead, found := engine.DeadLetterState(block, func(origin, group string) bool { return dlqOf(origin, group) == s.q.topic })
	if dead != nil {
		rec.record, rec.deadLetter = users, dead
	}
	return found
}

var seed = maphash.MakeSeed()

// Begin implements [engine.Gater]: one reader has the messages of a key, and a suspect runs alone. In OrderThroughRetries earlier messages of
// the key have ended, or are in the same batch.
func (s *source) Begin(m *driver.Message[*received]) engine.Admission {
	if m.Step != driver.StepHandle {
		return engine.Begins
	}
	b := s.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	it := m.Record.it
	switch {
	case it.owner != s.reader: // the client was killed just now
		return engine.NotYet
	case s.sub.Policy.Order == redeliver.OrderThroughRetries && s.q.waitsForKeyLocked(it, func(earlier *item) bool {
		return earlier.owner == s.reader && !earlier.waits && earlier.handlerRuns
	}):
		return engine.NotYet
	case !s.client.mayRunLocked(it) || !s.q.takeKeyLocked(it, s.reader):
		return engine.NotYet
	}
	it.handlerRuns = true
	s.client.running++
	if it.suspect {
		s.client.alone = it
	}
	return engine.Begins
}

// HandlerEnded implements [engine.Gater]. It does nothing: writes take effect at once.
func (s *source) HandlerEnded(*driver.Message[*received]) {}

// End implements [engine.Gater].
func (s *source) End(m *driver.Message[*received], how engine.Ending) {
	if how.Kind == engine.Stays {
		s.q.note(m.Record.it, s.reader, how.State)
	}
	if m.Step != driver.StepHandle {
		return
	}
	b := s.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if it := m.Record.it; it.owner == s.reader {
		s.q.endHandlerLocked(it)
		b.wakeAllLocked()
	}
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*received]) { s.q.settle(m.Record.it, s.reader) }

// Return implements [driver.Source].
func (s *source) Return(m *driver.Message[*received], _ time.Duration, _ bool) {
	if st := m.State; s.sub.KeepsPlace && !m.Displaced && st != nil && !st.LastFailed.IsZero() {
		s.q.note(m.Record.it, s.reader, st)
	}
	s.q.returnItem(m.Record.it, s.reader)
}

// Commit implements [driver.Source]. It does nothing, because each Settle takes effect at once.
func (s *source) Commit() {}

// Flush implements [driver.Source].
func (s *source) Flush(context.Context) {}

// codec implements driver.Codec for the records of one queue.
type codec struct{ q *queue }

var _ driver.Codec[*received] = codec{}

// toWatermill makes the Watermill message of a record.
func toWatermill(m *driver.Message[*received]) (*message.Message, error) { return m.Record.Message() }

// Key implements [driver.Codec].
func (c codec) Key(m *driver.Message[*received]) []byte { return m.Record.key }

// Body implements [driver.Codec].
func (c codec) Body(m *driver.Message[*received]) []byte { return m.Record.body }

// Headers implements [driver.Codec].
func (c codec) Headers(m *driver.Message[*received]) redeliver.Headers {
	return m.Record.unmarshal().Metadata
}

// Age implements [driver.Codec].
func (c codec) Age(m *driver.Message[*received]) (state *redeliver.State, created, expires time.Time) {
	rec := m.Record
	switch {
	case rec.state != nil:
		return rec.state, time.Time{}, time.Time{}
	case rec.deadLetter != nil:
		return nil, rec.it.at, time.Time{}
	default:
		return nil, rec.it.at, rec.expires()
	}
}

// State implements [driver.Codec].
func (c codec) State(m *driver.Message[*received], st *redeliver.State) {
	rec := m.Record
	if rec.state != nil {
		*st = *rec.state
		return
	}
	st.ID, st.Group, st.Origin = rec.id, c.q.group, c.q.topic
	st.Source = redeliver.Source{Known: true, Offset: rec.it.offset, Timestamp: rec.it.at}
	st.DeadLetter, st.Expires = rec.deadLetter, rec.expires()
}

// store writes the messages of one queue to the delay topics, to the DLQ and to their topic.
type store struct {
	client *memberClient
	q      *queue
	ladder delayqueue.Ladder
}

var _ driver.Store[*received] = (*store)(nil)

// slack is how much longer a level may be than a wait that is put on it. Waiting messages are released when they are
// due, so it causes no delay.
const slack = 100 * time.Millisecond

// Write implements [driver.Store].
func (s *store) Write(_ context.Context, to driver.Place, m *driver.Message[*received], st *redeliver.State, done driver.Done) {
	done.Confirmed(s.writeRecord(to, m.Record, st))
}

func (s *store) writeRecord(to driver.Place, rec *received, st *redeliver.State) (where string, err error) {
	s.q.b.mu.Lock()
	defer s.q.b.mu.Unlock()
	level, place := time.Duration(0), PlaceLevels
	switch to {
	case driver.PlaceDLQ:
		where, place = s.q.dlq(), PlaceDLQ
	case driver.PlaceTopic:
		where = s.q.topic
	case driver.PlaceLevel:
		level, _ = s.ladder.Next(time.Until(st.Due), slack)
		where = s.q.place(level)
	default:
		return "", errors.New("redelivertest: suspects wait in their queue")
	}
	if err := s.client.checkOpenLocked(); err != nil {
		return where, err
	}
	if to == driver.PlaceTopic {
		s.q.b.putLocked(s.q.topic, rec.copied, rec.it.run)
		return where, nil
	}
	if err := s.q.refusesLocked(place); err != nil {
		return where, fmt.Errorf("writing to %s: %w", where, err)
	}
	if to == driver.PlaceDLQ {
		s.q.deadLetterLocked(rec.copied.with(st), rec.it.run)
	} else {
		s.q.waitLocked(level, rec.copied.with(st), rec.it.run, firstOf(st))
	}
	return where, nil
}

// firstOf returns the offset in the topic of a message that came from there, or -1 if it is unknown.
func firstOf(st *redeliver.State) int64 {
	if !st.Source.Known || st.Replays > 0 {
		return -1
	}
	return st.Source.Offset
}

// leave frees the reader's items and unregisters it.
func (r *reader) leave() {
	b := r.q.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range r.q.items {
		if it.owner == r {
			r.q.freeLocked(it)
		}
	}
	b.readers = slices.DeleteFunc(b.readers, func(other *reader) bool { return other == r })
	b.wakeAllLocked()
}
