package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// slack is how much longer a level may be than the wait that is put on it. A
// delay topic lets a record go when it is due, not when the level is over, so
// it costs no lateness here.
const slack = 100 * time.Millisecond

// place is the topic on which a message waits from now until due.
func (l *layout) place(due, now time.Time) string {
	if level, ok := l.ladder.Next(due.Sub(now), slack); ok {
		return l.find(delayTopic, level).name
	}
	return l.find(retryTopic, 0).name
}

// forwarder writes the messages of one subscription to where they wait and to
// the DLQ. It implements delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	producer *producer
	layout   *layout
	dialect  deadletter.Dialect
	unknown  func() // is called when a topic is not there
}

// Schedule implements [delayqueue.Scheduler]. A wait that is too short for a
// level is held by the reader of the retry topic.
func (f *forwarder) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	now := time.Now()
	topic := f.layout.place(st.Due, now)
	// A due time is rounded up to the millisecond.
	if wait := st.Due.Sub(now); wait-time.Millisecond > f.layout.maxWait {
		return topic, &redeliver.UnschedulableError{Wait: wait, Max: f.layout.maxWait}
	}
	return f.park(ctx, topic, d, st)
}

// park writes a message to where it waits, and notes that.
func (f *forwarder) park(ctx context.Context, topic string, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	where, err := f.write(ctx, topic, d, st)
	if err == nil {
		if rec, ok := d.Record.(*record); ok { // else there was an error
			rec.entry.went = went{parked: true, attempts: st.Attempts, due: st.Due}
		}
	}
	return where, err
}

// hop writes a waiting message to the next place where it waits. How long it
// waits in all was looked at when it was scheduled; each level it can hold.
func (f *forwarder) hop(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	topic := f.layout.place(st.Due, time.Now())
	hopping := *st
	// The level is one of this ladder now, and is to be judged by it.
	hopping.Policy = f.layout.fingerprint
	return f.park(ctx, topic, d, &hopping)
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	topic := f.layout.find(deadTopic, 0).name
	if f.dialect != deadletter.NoDialect {
		return f.translated(ctx, topic, d, st)
	}
	return f.write(ctx, topic, d, st)
}

// onward writes an entry that no handler is to see now to where it goes next.
func (f *forwarder) onward(ctx context.Context, e *entry, st *redeliver.State) (string, error) {
	if e.then == toOrigin {
		return f.publish(ctx, e.d)
	}
	return f.hop(ctx, e.d, st)
}

// publish writes a delayed publish to its topic at last, as its publisher made it.
func (f *forwarder) publish(ctx context.Context, d *delayqueue.Delivery) (string, error) {
	rec, err := recordOf(d)
	if err != nil {
		return f.layout.origin, err
	}
	return f.send(ctx, rec, f.layout.origin, nil, nil, anyPartition)
}

// write sends a record to a topic of ours, on the partition that belongs to its
// place in the origin: what shared a partition there shares one here. It returns
// the topic.
func (f *forwarder) write(ctx context.Context, topic string, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return f.writeWith(ctx, topic, d, st, nil)
}

// writeWith is write with more headers behind ours.
func (f *forwarder) writeWith(ctx context.Context, topic string, d *delayqueue.Delivery, st *redeliver.State, more []deadletter.Header) (string, error) {
	rec, err := recordOf(d)
	if err != nil {
		return topic, err
	}
	partition := anyPartition
	if st.Source.Known {
		partition = st.Source.Partition
	}
	return f.send(ctx, rec, topic, st, more, partition)
}

// send writes a record and returns when that is confirmed. A try that nobody
// answered in its time is waited for and not repeated, wherever it went.
func (f *forwarder) send(ctx context.Context, rec *record, topic string, st *redeliver.State, more []deadletter.Header, partition int32) (string, error) {
	e := rec.entry
	e.rest()
	if before := e.unsure; before != nil {
		err := before.wait(ctx)
		if err == nil || errors.Is(err, errUnsure) {
			return before.record.Topic, err
		}
		e.unsure = nil
	}
	c := confirms.Get().(*confirm) //nolint:forcetypeassert // nothing else is in there
	rec.produce(&c.room, topic, st)
	appendHeaders(&c.room, more)
	if err := f.producer.write(ctx, c, &c.room, partition); err != nil {
		return topic, err
	}
	err := c.wait(ctx)
	if err == nil {
		c.idle()
		return topic, nil
	}
	if errors.Is(err, errUnsure) {
		e.unsure = c
	}
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		f.unknown() // the next sweep looks for it
	}
	return topic, err
}

func recordOf(d *delayqueue.Delivery) (*record, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, fmt.Errorf("kafka: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, nil
}
