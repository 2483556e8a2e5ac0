package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// leased is a message that a [Receiver] has given out.
type leased interface {
	State() redeliver.State
	Lost() bool
	Session() context.Context
	EndSpan(o redeliver.Outcome, err error)
	Wants(e redeliver.Event) bool
	Tell(e redeliver.Event)
	answers()
	timeout() time.Duration
	invalid() error
	beginSpan(ctx context.Context) context.Context
	// fail does what the policy says of a failure, and settles the message.
	fail(err error)
}

func leasedOf(msg *message.Message) leased {
	if d := engine.FromContext(msg.Context()); d != nil {
		return engineLease{d, msg}
	}
	if d := delayqueue.FromContext(msg.Context()); d != nil {
		return queueLease{d, msg}
	}
	return nil
}

type engineLease struct {
	*engine.Delivery
	msg *message.Message
}

func (l engineLease) Wants(e redeliver.Event) bool                  { return l.Sub().Wants(e) }
func (l engineLease) Tell(e redeliver.Event)                        { l.Sub().Tell(e) }
func (l engineLease) answers()                                      { l.Sub().Answers() }
func (l engineLease) timeout() time.Duration                        { return l.Sub().Policy.Timeout }
func (l engineLease) invalid() error                                { return l.Invalid() }
func (l engineLease) beginSpan(ctx context.Context) context.Context { return l.BeginSpan(ctx) }
func (l engineLease) fail(err error) {
	if l.FailLater(err) {
		l.msg.Ack()
	} else {
		l.msg.Nack()
	}
}

type queueLease struct {
	*delayqueue.Delivery
	msg *message.Message
}

func (l queueLease) Wants(e redeliver.Event) bool { return l.Sub.Wants(e) }
func (l queueLease) Tell(e redeliver.Event)       { l.Sub.Tell(e) }
func (l queueLease) answers()                     { l.Sub.Answers() }
func (l queueLease) timeout() time.Duration       { return l.Sub.Policy.Timeout }
func (l queueLease) invalid() error {
	if l.Sub.Policy.Invalid == nil {
		return nil
	}
	return l.Invalid(l.msg.Metadata, l.msg.Payload)
}
func (l queueLease) beginSpan(ctx context.Context) context.Context {
	return l.BeginSpan(ctx, l.msg.Metadata)
}
func (l queueLease) fail(err error) {
	now := time.Now()
	dec := l.Decide(err, now)
	if dec.Action == redeliver.RetryNow {
		dec.Action, dec.State.Due = redeliver.RetryLater, redeliver.CeilMilli(now.UTC())
	}
	if l.Sub.Forward(l.Delivery, dec, err) == nil {
		l.msg.Ack()
	} else {
		l.msg.Nack()
	}
}
