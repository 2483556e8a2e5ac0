package redelivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// slack is how much longer a level may be than the wait that is put on it. What
// waits is let go when it is due, so it costs no lateness.
const slack = 100 * time.Millisecond

// forwarder writes the messages of one subscription to where they wait and to
// the DLQ. It implements delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	client *Client
	q      *queue
	ladder delayqueue.Ladder
	print  string // of the policy
}

// Schedule implements [delayqueue.Scheduler].
func (f *forwarder) Schedule(_ context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	level, _ := f.ladder.Next(time.Until(st.Due), slack)
	return f.write(d, st, Waits, f.q.place(level), func(rec record, after *run) { f.q.wait(level, rec, after, firstOf(st)) })
}

// firstOf is the offset in the topic of a message that came from there; -1 for one
// that has lost its place, or never had one.
func firstOf(st *redeliver.State) int64 {
	if !st.Source.Known || st.Replays > 0 {
		return -1
	}
	return st.Source.Offset
}

// hop writes a waiting message to the next place where it waits.
func (f *forwarder) hop(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	hopping := *st
	hopping.Policy = f.print // the level is one of this ladder now
	return f.Schedule(ctx, d, &hopping)
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(_ context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	return f.write(d, st, DLQ, f.q.dlq(), func(rec record, _ *run) {
		f.q.bury(rec)
	})
}

// write does one write, or is refused.
func (f *forwarder) write(d *delayqueue.Delivery, st *redeliver.State, what Place, where string, put func(record, *run)) (string, error) {
	rec, ok := d.Record.(*delivered)
	if !ok {
		return where, fmt.Errorf("redelivertest: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	f.q.b.mu.Lock()
	defer f.q.b.mu.Unlock()
	if err := f.client.alive(); err != nil {
		return where, err
	}
	if err := f.q.refuses(what); err != nil {
		return where, fmt.Errorf("writing to %s: %w", where, err)
	}
	put(rec.with(st), rec.it.running)
	return where, nil
}

// publish writes a delayed publish to its topic at last.
func (f *forwarder) publish(d *delayqueue.Delivery) (string, error) {
	rec, ok := d.Record.(*delivered)
	if !ok {
		return f.q.topic, fmt.Errorf("redelivertest: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	f.q.b.mu.Lock()
	defer f.q.b.mu.Unlock()
	if err := f.client.alive(); err != nil {
		return f.q.topic, err
	}
	f.q.b.put(f.q.topic, rec.record, rec.it.running)
	return f.q.topic, nil
}
