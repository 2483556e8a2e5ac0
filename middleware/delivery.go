package middleware

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// delivery is what middlewares beside Retry need to know of a message.
type delivery interface {
	State() redeliver.State
	Lost() bool
	// Subscription identifies what delivered the message.
	subscription() any
	tellChange(change redeliver.Change, err error)
	decide(st redeliver.State, err error, now time.Time) *redeliver.Decision
}

// deliveryOf returns the delivery of a message whose context is ctx, or nil.
func deliveryOf(ctx context.Context) delivery {
	if d := engine.FromContext(ctx); d != nil {
		return engineDelivery{d}
	}
	if d := delayqueue.FromContext(ctx); d != nil {
		return queueDelivery{d}
	}
	return nil
}

type engineDelivery struct{ *engine.Delivery }

func (d engineDelivery) subscription() any { return d.Sub() }
func (d engineDelivery) tellChange(change redeliver.Change, err error) {
	d.Sub().TellChange(change, "", err)
}
func (d engineDelivery) decide(st redeliver.State, err error, now time.Time) *redeliver.Decision {
	return d.Sub().Decide(st, err, now)
}

type queueDelivery struct{ *delayqueue.Delivery }

func (d queueDelivery) subscription() any { return d.Sub }
func (d queueDelivery) tellChange(change redeliver.Change, err error) {
	d.Sub.Tell(redeliver.SubscriptionChanged{Origin: d.Sub.Origin, Group: d.Sub.Group, Change: change, Err: err})
}
func (d queueDelivery) decide(st redeliver.State, err error, now time.Time) *redeliver.Decision {
	return d.Sub.Decide(st, err, now)
}
