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
		return f.layout.topic, f.write(ctx, f.layout.topic, rec, nil)
	}
	return where, f.write(ctx, where, rec, &carried{headers: st.AppendHeaders(nil), until: until, publish: publish})
}

// DeadLetter implements [delayqueue.DeadLetters].
func (f *forwarder) DeadLetter(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	rec, where, err := f.record(d, f.layout.dlq)
	if err != nil {
		return where, err
	}
	return where, f.write(ctx, where, rec, &carried{headers: st.AppendHeaders(nil)})
}

func (f *forwarder) record(d *delayqueue.Delivery, where string) (*record, string, error) {
	rec, ok := d.Record.(*record)
	if !ok {
		return nil, where, fmt.Errorf("pubsub: message %s was delivered by another adapter (%T)", d.ID, d.Record)
	}
	return rec, where, nil
}

// write does one write, with what is carried, if anything is.
func (f *forwarder) write(ctx context.Context, topic string, rec *record, c *carried) error {
	msg, err := rec.with(c)
	if err != nil {
		return fmt.Errorf("pubsub: message %s for %s: %w", rec.id(), topic, err)
	}
	msg.SetContext(ctx)
	err = publish(ctx, f.cfg.Publisher, topic, msg)
	if err != nil && f.cfg.Refused != nil && f.cfg.Refused(err) {
		err = fmt.Errorf("%w: %w", delayqueue.ErrRefused, err)
	}
	return err
}

// publish bounds a Publish, which has no context of its own. One that is not over
// in time is left behind: it may still succeed, and then the message is there twice.
func publish(ctx context.Context, pub message.Publisher, topic string, msg *message.Message) error {
	done := make(chan error, 1)
	go guard("Publish", func() { done <- pub.Publish(topic, msg) }, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("publishing to %s: %w", topic, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publishing to %s: Publish has not returned: %w", topic, context.Cause(ctx))
	}
}
