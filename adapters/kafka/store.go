package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// slack is how much longer a level may be than the wait that is put on it. A
// delay topic lets a record go when it is due, not when the level is over, so
// it costs no lateness here.
const slack = 100 * time.Millisecond

// place is the topic on which a message waits from now until due. short reports that the message would wait on a rung that
// cannot be written to yet: it hops over the levels that can.
func (l *layout) topicFor(due, now time.Time) (topic string, isShort bool) {
	wait := due.Sub(now)
	level, ok := l.writable.Load().Next(wait, slack)
	if !ok {
		return l.topicOf(retryTopic, 0).name, false
	}
	longest, _ := l.ladder.Next(wait, slack)
	return l.topicOf(delayTopic, level).name, level < longest
}

// store writes the messages of one subscription to where they wait, to the DLQ, and, when a delayed publish is due, to the
// origin. It implements driver.Store.
type store struct {
	producer      *producer
	layout        *layout
	spring        bool   // see Config.SpringHeaders
	suspectTopics func() // is called when what the broker says shows that our topics are not as they were
	wantRungs     func() // is called when a message would wait on a rung that cannot be written to
}

var (
	_ driver.Store[*sarama.ConsumerMessage] = (*store)(nil)
	_ driver.Truncating                     = (*store)(nil)
)

// Truncates implements [driver.Truncating]: what the DLQ refuses goes there without its body. It is in the origin still.
func (s *store) Truncates() bool { return true }

// Write implements [driver.Store]. A wait that is too short for a level is held by the reader of the retry topic.
func (s *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*sarama.ConsumerMessage], st *redeliver.State, done driver.Done) {
	done = checkedDone{done, s.suspectTopics}
	switch to {
	case driver.Level:
		now := time.Now()
		topic, isShort := s.layout.topicFor(st.Due, now)
		// A due time is rounded up to the millisecond. How long a hop waits in all was looked at when it was scheduled.
		if wait := st.Due.Sub(now); wait-time.Millisecond > s.layout.maxWait && m.Step != driver.Hop {
			done.Confirmed(topic, &redeliver.UnschedulableError{Wait: wait, Max: s.layout.maxWait})
			return
		}
		if isShort {
			s.wantRungs()
		}
		s.write(ctx, topic, m.Record, st, nil, done)
	case driver.DLQ:
		s.writeDeadLetter(ctx, m.Record, st, done)
	case driver.Topic:
		s.write(ctx, s.layout.origin, m.Record, nil, nil, publishDone{done})
	case driver.Suspects:
		done.Confirmed("", errors.New("kafka: suspects wait where they are"))
	}
}

// write sends a record to a topic, on the partition that belongs to its place in the origin: what shared a partition there
// shares one here. Without a state it is as its publisher made it, and where its key says.
func (s *store) write(ctx context.Context, topic string, rec *sarama.ConsumerMessage, st *redeliver.State, extra []deadletter.Header, done driver.Done) {
	c := pendingWrites.Get().(*pendingWrite) //nolint:forcetypeassert // nothing else is in there
	fillRecord(rec, &c.room, topic, st)
	appendHeaders(&c.room, extra)
	partition := anyPartition
	if st != nil && st.Source.Known {
		partition = st.Source.Partition
	}
	s.producer.post(ctx, c, partition, done)
}

// bury writes a dead letter. Spring's headers stand in our own block, behind what we write there: whoever reads the DLQ by a
// name finds the last of it, and split cuts them off with the rest, so that they are never taken for the user's. A message that
// the DLQ refuses with them goes there without.
func (s *store) writeDeadLetter(ctx context.Context, rec *sarama.ConsumerMessage, st *redeliver.State, done driver.Done) {
	topic := s.layout.topicOf(dlqTopic, 0).name
	plain := func() { s.write(ctx, topic, rec, st, nil, done) }
	if !s.spring {
		plain()
		return
	}
	s.write(ctx, topic, rec, st, foreign.AppendSpring(nil, st), springDone{done, plain})
}

// outcome has our topics looked at when one is not there, or refuses a message.
type checkedDone struct {
	driver.Done
	suspectTopics func()
}

// Confirmed implements [driver.Done].
func (o checkedDone) Confirmed(where string, err error) {
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, driver.ErrRefused) {
		o.suspectTopics() // the next sweep looks at them
	}
	o.Done.Confirmed(where, err)
}

// translated hears of a dead letter with the headers of Spring, too.
type springDone struct {
	driver.Done
	retryPlain func()
}

// Confirmed implements [driver.Done].
func (t springDone) Confirmed(where string, err error) {
	if errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrDoubtful) {
		t.retryPlain()
		return
	}
	t.Done.Confirmed(where, err)
}

// publishing hears of a delayed publish. A missing right to write to the topic concerns this message alone: others of the
// subscription need no such right.
type publishDone struct{ driver.Done }

// Confirmed implements [driver.Done].
func (p publishDone) Confirmed(where string, err error) {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		err = fmt.Errorf("%w: grant Write on the topic to the group's members, who publish what is delayed: %w", driver.ErrRefused, err)
	}
	p.Done.Confirmed(where, err)
}

func appendHeaders(m *sarama.ProducerMessage, extra []deadletter.Header) {
	for _, h := range extra {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
	}
}
