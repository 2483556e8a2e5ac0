package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// store writes a subscription's messages to its retry and delay topics, its topic and its DLQ. It implements
// driver.Store.
type store struct {
	cfg    *Config
	layout *layout
	sub    *engine.Subscription
}

var _ driver.Store[*record] = (*store)(nil)

// Truncates implements [driver.Truncating].
func (s *store) Truncates() bool { return true }

// Write implements [driver.Store]. Publish has no context and may take any time. Write waits for it, because it may
// still succeed, and a second Publish would duplicate the message.
func (s *store) Write(ctx context.Context, to driver.Place, m *driver.Message[*record], st *redeliver.State, done driver.Done) {
	topic, msg, err := s.layout.compose(to, m.Record, st, time.Now())
	if err != nil {
		done.Confirmed(topic, fmt.Errorf("pubsub: message %s for %s: %w", st.ID, topic, err))
		return
	}
	hangTimeout := 2 * s.cfg.SendTimeout // a Publish that obeys its context has returned by then
	stillPublishing := redeliver.PublishFailed{State: *st, Where: topic, Err: fmt.Errorf(
		"publishing to %s: Publish has not returned for %s, and redeliver still waits for it: make the publisher obey the context of the message", topic, hangTimeout)}
	timer := time.AfterFunc(hangTimeout, func() { s.sub.Emit(stillPublishing) })
	msg.SetContext(ctx)
	publish := func() (struct{}, error) { return struct{}{}, s.cfg.Publisher.Publish(topic, msg) }
	go callGuarded("Publish", publish, func(_ struct{}, err error) {
		timer.Stop()
		if err != nil {
			err = s.classify(m.Record, fmt.Errorf("publishing to %s: %w", topic, err))
		}
		done.Confirmed(topic, err)
	})
}

// compose returns the message for a place, and its topic.
func (l *layout) compose(to driver.Place, rec *record, st *redeliver.State, now time.Time) (topic string, msg *message.Message, err error) {
	c := &carried{headers: driver.AppendStateHeaders(*st, nil)}
	switch {
	case to == driver.PlaceTopic:
		return l.topic, rec.unmarshal(), nil
	case to == driver.PlaceLevel:
		topic, c.until = l.nextTopic(st.Due, now)
		if c.publish = rec.publish; c.publish && topic == l.retry { // only the reader of a delay topic publishes it
			topic, c.until = l.delays[0], limits.CeilMilli(now)
		}
	case to == driver.PlaceDLQ && st.Truncated != "":
		topic, rec = l.dlq, &record{uuid: rec.uuid} // a stub
	case to == driver.PlaceDLQ:
		topic = l.dlq
	default:
		return "", nil, fmt.Errorf("there is no place %d", to)
	}
	msg, err = rec.withState(c)
	return topic, msg, err
}

// maxOutageTries is the number of tries for which an unknown error of Publish counts as an outage and stops all
// messages. After that the error may concern this message alone. So the others continue, which shows whether they can be
// written.
const maxOutageTries = 8

// isRefused calls Config.Refused. If that panics, it reports false.
func (s *store) isRefused(err error) (refused bool) {
	if s.cfg.Refused == nil {
		return false
	}
	callGuarded("Refused", func() (bool, error) { return s.cfg.Refused(err), nil }, func(v bool, _ error) { refused = v })
	return refused
}

// classify classifies an error of Publish.
func (s *store) classify(rec *record, err error) error {
	rec.tries++
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case s.isRefused(err):
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case rec.tries <= maxOutageTries:
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrDoubtful, err)
}
