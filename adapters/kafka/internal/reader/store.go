package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// store writes messages of one subscription to where they wait, to the DLQ, and, for a delayed publish, to the origin.
// It implements driver.Store.
type store struct {
	producer     *produce.Producer
	layout       *topology.Layout
	spring       bool        // see Config.SpringHeaders
	onError      func(error) // called with the error of each write
	requestRungs func()      // called when a message should wait on a rung that cannot be written to
}

var (
	_ driver.Store[*sarama.ConsumerMessage] = (*store)(nil)
	_ driver.Truncating                     = (*store)(nil)
)

// Truncates implements [driver.Truncating]. A message that the DLQ refuses is written without its body, which is still
// in the origin.
func (s *store) Truncates() bool { return true }

// Write implements [driver.Store]. The reader of the retry topic holds messages whose wait is too short for a level.
func (s *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*sarama.ConsumerMessage], st *redeliver.State, done driver.Done) {
	switch to {
	case driver.PlaceLevel:
		now := time.Now()
		topic, needsRung := s.layout.TopicFor(st.Due, now)
		// Due times are rounded up to the millisecond. The total wait of a hop was checked when it was scheduled.
		if wait := st.Due.Sub(now); wait-time.Millisecond > s.layout.MaxWait && m.Step != driver.StepHop {
			done.Confirmed(topic, &redeliver.UnschedulableError{Wait: wait, Max: s.layout.MaxWait})
			return
		}
		if needsRung {
			s.requestRungs()
		}
		s.writeRecord(ctx, topic, m.Record, st, true, nil, done)
	case driver.PlaceDLQ:
		s.writeDeadLetter(ctx, m.Record, st, done)
	case driver.PlaceTopic:
		s.writeRecord(ctx, s.layout.Origin, m.Record, nil, false, nil, publishDone{done})
	case driver.PlaceSuspects:
		done.Confirmed("", errors.New("kafka: suspects wait where they are"))
	}
}

// writeRecord sends a record to a topic. The partition follows from the one in the origin, so records that shared a
// partition there share one here. Without a state, the record is written as its publisher made it, and its key chooses
// the partition.
func (s *store) writeRecord(ctx context.Context, topic string, rec *sarama.ConsumerMessage, st *redeliver.State, waits bool, extra []deadletter.Header, done driver.Done) {
	w := produce.PooledWrite()
	w.Record.Fill(rec, topic, st, waits)
	record.AppendHeaders(&w.Record.Message, extra)
	partition := produce.AnyPartition
	if st != nil && st.Source.Known {
		partition = st.Source.Partition
	}
	w.OnError = s.onError
	s.producer.Post(ctx, w, partition, done)
}

// writeDeadLetter writes a message to the DLQ. Spring's headers follow our own block. A reader that searches by name
// takes the last header, so it finds Spring's. record.SplitHeaders removes these with our block. If the DLQ refuses the
// message with Spring's headers, it is written without them.
func (s *store) writeDeadLetter(ctx context.Context, rec *sarama.ConsumerMessage, st *redeliver.State, done driver.Done) {
	topic := s.layout.TopicOf(topology.DLQ, 0).Name
	writePlain := func() { s.writeRecord(ctx, topic, rec, st, false, nil, done) }
	if !s.spring {
		writePlain()
		return
	}
	s.writeRecord(ctx, topic, rec, st, false, foreign.AppendSpring(nil, st), springDone{done, writePlain})
}

// recheckAfter returns a function that makes the keeper check our topics if the error of a write suggests that they
// have changed: one is missing, or refuses a message.
func recheckAfter(k *topology.Keeper) func(error) {
	return func(err error) {
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, driver.ErrRefused) {
			k.Recheck()
		}
	}
}

// springDone writes a refused dead letter again, without Spring's headers.
type springDone struct {
	driver.Done
	writePlain func() // writes the dead letter without Spring's headers
}

// Confirmed implements [driver.Done].
func (d springDone) Confirmed(where string, err error) {
	if errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrDoubtful) {
		d.writePlain()
		return
	}
	d.Done.Confirmed(where, err)
}

// publishDone turns a missing right to write to the topic into a refusal of this message, because the other messages of
// the subscription do not need it.
type publishDone struct{ driver.Done }

// Confirmed implements [driver.Done].
func (d publishDone) Confirmed(where string, err error) {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		err = fmt.Errorf("%w: grant Write on the topic to the group's members, which publish delayed messages: %w", driver.ErrRefused, err)
	}
	d.Done.Confirmed(where, err)
}
