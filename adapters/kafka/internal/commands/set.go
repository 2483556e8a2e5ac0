package commands

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

// Set has the commands that had not expired at one moment. It never changes.
type Set struct{ all []deadletter.Command }

// Released returns a time in Unix milliseconds: messages that were written to the level by that time are due at once.
// It returns 0 if nothing is released.
func (s *Set) Released(level time.Duration) (writtenBy int64) {
	for i := range s.all {
		if cmd := &s.all[i]; cmd.Kind == deadletter.CommandRelease && cmd.Filter.MatchLevel(level) {
			writtenBy = max(writtenBy, cmd.Created.UnixMilli())
		}
	}
	return writtenBy
}

// FindCancel returns the command that cancels a message which is due, or nil. The message was written to its level at
// written, in Unix milliseconds.
func (s *Set) FindCancel(m *driver.Message[*sarama.ConsumerMessage], written int64, level time.Duration, now time.Time) *deadletter.Command {
	var seen *deadletter.Message
	for i := range s.all {
		cmd := &s.all[i]
		if cmd.Kind != deadletter.CommandCancel {
			continue
		}
		if seen == nil {
			seen = waitingMessage(m, written)
		}
		if cmd.AppliesTo(seen, level, now) {
			return cmd
		}
	}
	return nil
}

// waitingMessage returns a message as a filter sees it.
func waitingMessage(m *driver.Message[*sarama.ConsumerMessage], written int64) *deadletter.Message {
	rec := m.Record
	seen := &deadletter.Message{
		ID: m.State.ID, Key: rec.Key, Body: rec.Value, State: *m.State, Writer: deadletter.WriterRedeliver, Time: time.UnixMilli(written),
		Headers: make([]deadletter.Header, 0, len(rec.Headers)),
	}
	for _, h := range rec.Headers {
		if h != nil {
			seen.Headers = append(seen.Headers, deadletter.Header{Name: string(h.Key), Value: h.Value})
		}
	}
	return seen
}
