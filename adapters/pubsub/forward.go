package pubsub

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// forwarder writes the messages of one subscription to where they wait and to
// the DLQ. It implements delayqueue.Scheduler and delayqueue.DeadLetters.
type forwarder struct {
	cfg    *Config
	layout *layout
}

// Schedule implements [delayqueue.Scheduler].
func (f *forwarder) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	rec, where, err := f.record(d, f.layout.back)
	if err != nil {
		return where, err
	}
	return f.wait(ctx, rec, st, false)
}

// wait writes a record to the next place where it waits until st.Due; a delayed
// publish that is due goes to its topic.
func (f *forwarder) wait(ctx context.Context, rec *record, st *redeliver.State, publish bool) (string, error) {
	where, until := f.layout.place(st.Due, time.Now())
	if publish && where == f.layout.back {
		return f.write(ctx, f.layout.topic, rec, nil)
	}
	return f.write(ctx, where, rec, &carried{headers: st.AppendHeaders(nil), until: until, publish: publish})
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	rec, where, err := f.record(d, f.layout.dlq)
	if err != nil {
		return where, err
	}
	return f.write(ctx, where, rec, &carried{headers: st.AppendHeaders(nil)})
}

func (f *forwarder) record(d *delayqueue.Delivery, where string) (*record, string, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, where, fmt.Errorf("pubsub: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, where, nil
}

// write does one write, with what is carried, if anything is, and returns where. If an
// earlier Publish of the record has not returned, write waits for that one and publishes
// nothing: it may have succeeded, whatever its topic.
func (f *forwarder) write(ctx context.Context, topic string, rec *record, c *carried) (string, error) {
	call := rec.unanswered
	if call == nil {
		msg, err := rec.with(c)
		if err != nil {
			return topic, fmt.Errorf("pubsub: message %s for %s: %w", rec.id(), topic, err)
		}
		msg.SetContext(ctx)
		call = startPublish(f.cfg.Publisher, topic, msg)
	}
	returned, err := call.wait(ctx)
	rec.unanswered = nil
	if !returned {
		rec.unanswered = call
	}
	if err != nil && f.cfg.Refused != nil && f.cfg.Refused(err) {
		err = fmt.Errorf("%w: %w", delayqueue.ErrRefused, err)
	}
	return call.topic, err
}

// publishCall is a call of Publish, which has no context of its own and may take any time.
type publishCall struct {
	topic  string
	result chan error // of one
}

func startPublish(pub message.Publisher, topic string, msg *message.Message) *publishCall {
	call := &publishCall{topic, make(chan error, 1)}
	go guard("Publish", func() { call.result <- pub.Publish(topic, msg) }, func(err error) { call.result <- err })
	return call
}

// wait returns the result of the call, or an error if ctx ends before Publish has returned.
func (c *publishCall) wait(ctx context.Context) (returned bool, err error) {
	select {
	case err := <-c.result:
		if err != nil {
			return true, fmt.Errorf("publishing to %s: %w", c.topic, err)
		}
		return true, nil
	case <-ctx.Done():
		return false, fmt.Errorf("publishing to %s: Publish has not returned: %w", c.topic, context.Cause(ctx))
	}
}
