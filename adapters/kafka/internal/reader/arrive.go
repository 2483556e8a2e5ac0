package reader

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// waitState is the state of a record that waits, or that has a place in a key queue.
type waitState struct {
	written  int64        // when it was written to its level, in Unix milliseconds
	lastStep driver.Step  // the step when it is due; it may hop before
	queued   *perkey.Copy // its copy in a key queue, or nil
}

// parseWaiting parses a record of a topic on which messages wait, and restores the record of the origin.
func (s *source) parseWaiting(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	w := &waitState{written: rec.Timestamp.UnixMilli()}
	s.records.At(m.Seq).waiting = w
	users, ours := record.SplitHeaders(rec.Headers)
	rec.Headers = users
	stay := s.r.readArrival(rec, ours, s.level)
	clear(ours) // users keeps their array in memory
	record.Detach(rec)
	st := stay.State
	st.DeadLetter, _ = s.r.readDeadLetter(rec) // its findings were reported at the first delivery
	st.Expires = record.Expires(rec)
	s.r.Sub.CheckPolicyOf(st)
	if len(stay.Findings) > 0 {
		s.r.Sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: st.ID, Findings: stay.Findings})
	}
	if s.keys != nil {
		w.queued = s.keys.PlaceWaiting(m, &stay)
	}
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = s.r.Layout.Origin, -1, -1, st.Source.Timestamp
	if st.Source.Known {
		rec.Partition, rec.Offset = st.Source.Partition, st.Source.Offset
	}
	if stay.Publish {
		w.lastStep = driver.StepPublish
	}
	m.State, m.Retry, m.Displaced, m.Until, m.Step = st, true, true, stay.Until, w.lastStep
	rest := st.Due.Sub(stay.Until)
	switch {
	case stay.Hops && rest <= s.r.jitter && s.heldCount < softMaxHeld/2:
		// Only jitter is left. The record waits here if there is room, because it would wait as long after a hop.
		m.Until = st.Due
	case stay.Hops:
		m.Step = driver.StepHop
	}
	if w.isReleased(s.released) {
		s.makeDue(m, w, time.Now())
	}
	s.lastDue = m.Until
}

// readDeadLetter removes the block of a DLQ from a record whose origin is that DLQ, and returns the state in the block.
// It ignores the block of any other DLQ.
func (r *Reader) readDeadLetter(rec *sarama.ConsumerMessage) (*redeliver.State, []redeliver.Finding) {
	users, ours := record.SplitHeaders(rec.Headers)
	if ours == nil {
		return nil, nil
	}
	dead, found := engine.DeadLetterState(record.AppendTexts(nil, ours), func(origin, group string) bool {
		return r.Provisioner.Config.Names.DLQTopic(origin, group) == r.Layout.Origin
	})
	if dead != nil {
		rec.Headers = users
	}
	return dead, found
}

// readArrival interprets ours, redeliver's headers of a record that waits. m has only the user's headers.
func (r *Reader) readArrival(m *sarama.ConsumerMessage, ours []*sarama.RecordHeader, level time.Duration) delayqueue.Stay {
	var room [20]driver.Header // more than redeliver writes
	return delayqueue.Arrive(&delayqueue.Arrival{
		Group: r.Layout.Group, Origin: r.Layout.Origin, Ladder: r.Layout.Ladder,
		Level: level, Written: m.Timestamp, Now: time.Now(),
	}, record.AppendTexts(room[:0], ours), func() string { return record.ID(m) })
}

// readStay interprets a record of a topic on which messages wait, as its lane will.
func (s *Session) readStay(topic string, rec *topiclog.Record) delayqueue.Stay {
	users, ours := record.SplitHeaders(rec.Headers)
	return s.reader.readArrival(&sarama.ConsumerMessage{Key: rec.Key, Headers: users, Timestamp: rec.Time}, ours, s.levels[topic])
}

// isReleased reports whether a release of the messages that were written by a time, in Unix milliseconds, makes the
// record due.
func (w *waitState) isReleased(writtenBy int64) bool { return w.written <= writtenBy && writtenBy > 0 }

// makeDue makes a message due at once.
func (s *source) makeDue(m *driver.Message[*sarama.ConsumerMessage], w *waitState, now time.Time) {
	m.Step = w.lastStep
	if now = limits.CeilMilli(now.UTC()); now.Before(m.State.Due) {
		m.State.Due = now
	}
	m.Until = m.State.Due
}

// applyReleases makes due the lane's messages that a new command releases.
func (s *source) applyReleases() {
	if s.keys != nil {
		return // OrderThroughRetries must keep the order of keys
	}
	previous := s.released
	s.released = s.r.commands.Current().Released(s.level)
	if s.released <= previous {
		return
	}
	now := time.Now()
	s.lane.Revise(func(m *driver.Message[*sarama.ConsumerMessage]) {
		if w := s.records.At(m.Seq).waiting; w.isReleased(s.released) {
			s.makeDue(m, w, now)
		}
	})
}
