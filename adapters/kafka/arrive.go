package kafka

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// waiting is what a source knows of a record that waits, or that has a place in the line of its key.
type waiting struct {
	written int64       // to where it waits, in Unix milliseconds
	last    driver.Step // what happens when it is due; it may hop before
	inLine  *lineCopy   // its place in the line of its key; nil for none
	runs    bool        // its key lets it run: it waits for something else
	parks   bool        // it is written to a level, until those before it in its line may be through
	leaves  time.Time   // it is to park until then
}

// parseWaiting reads the state of a record on a topic on which messages wait. The record is then as it stood in its origin.
func (s *source) parseWaiting(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	w := &waiting{written: rec.Timestamp.UnixMilli()}
	s.track.of(m.Seq).waits = w
	users, ours := split(rec.Headers)
	rec.Headers = users
	detach(rec)
	stay := s.r.arrive(rec, ours, *s.level)
	st := stay.State
	st.DeadLetter, _ = s.r.readDeadLetter(rec) // its findings were reported when it came first
	st.Expires = expiresOf(rec)
	s.r.sub.Met(st)
	if len(stay.Findings) > 0 {
		s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: st.ID, Findings: stay.Findings})
	}
	if s.keys != nil {
		s.keys.waits(m, w, &stay)
	}
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = s.r.layout.origin, -1, -1, st.Source.Timestamp
	if st.Source.Known {
		rec.Partition, rec.Offset = st.Source.Partition, st.Source.Offset
	}
	if stay.Publish {
		w.last = driver.Publish
	}
	m.State, m.Retry, m.Displaced, m.Until, m.Step = st, true, true, stay.Until, w.last
	rest := st.Due.Sub(stay.Until)
	switch {
	case stay.Hops && rest <= s.r.jitter && s.inHand < holdSoft/2:
		// The rest is jitter. The record waits here while there is room: a hop would only bring it to a place like this.
		m.Until = st.Due
	case stay.Hops:
		m.Step = driver.Hop
	}
	if s.isReleased(w) {
		s.makeDue(m, w, time.Now())
	}
	s.lastDue = m.Until
}

// readDeadLetter takes redeliver's block of a DLQ off a record that was read from there: it is the state with which the message
// was dead, and no header of the message. Of a block of another DLQ nothing is believed.
func (r *reader) readDeadLetter(rec *sarama.ConsumerMessage) (*redeliver.State, []redeliver.Finding) {
	users, ours := split(rec.Headers)
	if ours == nil {
		return nil, nil
	}
	dead, found := engine.DeadLetterState(appendTexts(nil, ours), func(origin, group string) bool {
		return r.client.cfg.Names.dlq(origin, group) == r.layout.origin
	})
	if dead != nil {
		rec.Headers = users
	}
	return dead, found
}

// arrive says what the headers of a record mean that has come to a topic on which
// messages wait. m has the user's alone.
func (r *reader) arrive(m *sarama.ConsumerMessage, ours []*sarama.RecordHeader, w waitLevel) delayqueue.Stay {
	var room [20]redeliver.Header // more than there are of ours
	layout := r.layout
	return delayqueue.Arrive(&delayqueue.Arrival{
		Group: layout.group, Origin: layout.origin, Ladder: layout.ladder,
		Level: w.level, Written: m.Timestamp, Now: time.Now(),
	}, appendTexts(room[:0], ours), func() string { return uuidOf(m) })
}

// isReleased reports whether a command makes a message due that has waited since it was written.
func (s *source) isReleased(w *waiting) bool { return w.written <= s.released && s.released > 0 }

// makeDue makes a message due at once.
func (s *source) makeDue(m *driver.Message[*sarama.ConsumerMessage], w *waiting, now time.Time) {
	m.Step = w.last
	if now = limits.CeilMilli(now.UTC()); now.Before(m.State.Due) {
		m.State.Due = now
	}
	m.Until = m.State.Due
}

// obey makes due what the lane holds and a new release takes.
func (s *source) obey() {
	current := s.r.control.current.Load()
	if current == s.commands {
		return
	}
	s.commands = current
	was := s.released
	if s.keys == nil { // a key that waits for its failures keeps its order
		s.released = current.released(s.level.level)
	}
	if s.released <= was {
		return
	}
	now := time.Now()
	s.lane.Revise(func(m *driver.Message[*sarama.ConsumerMessage]) {
		if w := s.track.of(m.Seq).waits; s.isReleased(w) {
			s.makeDue(m, w, now)
		}
	})
}
