// Package observedtest has what the tests of the exporters of metrics share: events, and a DLQ that does not answer.
package observedtest

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

var errDeclined = errors.New("card declined")

// State returns the state of a message after that many attempts.
func State(attempts int) redeliver.State {
	return redeliver.State{Origin: "orders", Group: "billing", Attempts: attempts}
}

// Dead returns the state of a message that was dead-lettered.
func Dead() redeliver.State {
	dead := State(3)
	dead.Reason = redeliver.ReasonExhausted
	return dead
}

// Events returns at least one event of each kind.
func Events() []redeliver.Event {
	state, dead := State, Dead()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	due := state(1)
	due.Due = began.Add(-2 * time.Second)
	return []redeliver.Event{
		redeliver.Attempted{State: state(0), Start: began, Took: 20 * time.Millisecond},
		redeliver.Attempted{State: due, Start: began, Took: 20 * time.Millisecond},
		redeliver.Attempted{State: state(1), Start: began, Took: time.Second}, // an immediate retry, which was not due
		redeliver.Attempted{State: state(2), Start: began, Err: &redeliver.TimeoutError{After: time.Second}, Took: time.Second},
		redeliver.Attempted{State: state(0), Start: began, Err: &redeliver.PanicError{}, Took: time.Second},
		redeliver.Attempted{State: state(0), Start: began, Err: errDeclined, Took: time.Second},
		redeliver.Committed{State: state(0)},
		redeliver.RetryScheduled{State: state(1), Where: "orders.billing.retry.1m30s"},
		redeliver.RetryScheduled{State: state(1), Where: "orders.retry.1.5s"},
		redeliver.RetryScheduled{State: state(1), Where: "orders.billing.retry"},
		redeliver.RetryScheduled{State: state(1), Where: "orders"},
		redeliver.MessagePostponed{State: state(0)},
		redeliver.DeadLettered{State: dead},
		redeliver.Discarded{State: dead},
		redeliver.Hopped{State: state(1)},
		redeliver.Published{State: state(0), Topic: "exchange with a routing key that a message names"},
		redeliver.PublishFailed{State: state(1)},
		redeliver.HandlerStuck{State: state(0), Stuck: 2},
		redeliver.LateAnswer{State: state(0), Stuck: 1},
		redeliver.HeadersIgnored{Topic: "orders"},
		redeliver.Abandoned{State: state(0)},
		redeliver.MessagesLost{Origin: "orders", Group: "billing", Where: "orders.billing.retry.10s/3", Count: 7},
		redeliver.MessagesLost{Origin: "orders", Group: "billing", Where: "orders.billing.retry.10s"},
		redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: redeliver.ChangeDisconnected},
		redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: redeliver.ChangeIntakePaused},
		redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: redeliver.ChangeAssigned},
		redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: "something new"},
	}
}

// Silent is a DLQ whose broker does not answer in time.
type Silent struct {
	deadletter.Queue
	Name string
}

// Info implements [deadletter.Queue].
func (s Silent) Info() deadletter.Info {
	info := s.Queue.Info()
	info.DLQ = s.Name
	return info
}

// Count implements [deadletter.Queue].
func (s Silent) Count(ctx context.Context) (int64, bool, error) {
	<-ctx.Done()
	return 0, false, ctx.Err()
}
