package dlq

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// deliveriesKey is the state's key for the highest delivery count of a message in a DLQ with a delivery limit.
const deliveriesKey = "met"

// deadReader reads the messages that were ready when it was opened. It implements [driver.Reader].
type deadReader struct {
	s             *deadSession
	maxDeliveries int // delivery count at which a message is not read; 0 means none
	deliveries    int // highest delivery count so far
}

// Next implements [driver.Reader].
func (r *deadReader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	d, err := r.s.scanner.Next(ctx)
	if err != nil {
		return nil, err
	}
	count, _ := wire.DeliveryCount(d.Headers)
	if r.deliveries = max(r.deliveries, count); r.maxDeliveries > 0 && r.deliveries >= r.maxDeliveries {
		return nil, r.s.q.tooManyDeliveries(r.deliveries)
	}
	m := r.s.q.readMessage(&d)
	if !want(m) {
		return nil, nil //nolint:nilnil // see Next
	}
	return m, nil
}

// CountArrivals implements [deadletter.ArrivalCounter].
func (r *deadReader) CountArrivals(context.Context) (int, error) { return r.s.scanner.Arrivals() }

// Close implements [driver.Reader].
func (r *deadReader) Close(ctx context.Context) error {
	err := r.s.scanner.ReturnAll(ctx)
	if r.s.conn.IsClosed() {
		return nil // the broker has all messages back, and the locks are released
	}
	if err == nil && r.s.q.limit > 0 {
		err = r.s.q.recordDeliveries(ctx, r.deliveries+1, r.s.scanner.AtEnd()) // returning a message counts as a delivery
	}
	return err
}

// knownDeliveries returns the highest known delivery count of a message in the DLQ.
func (q *Queue) knownDeliveries(ctx context.Context) (met int, err error) {
	state, err := q.Load(ctx)
	if err == nil && state[deliveriesKey] != nil {
		_ = json.Unmarshal(state[deliveriesKey], &met) // an invalid value counts as 0
	}
	return met, err
}

// checkDeliveries refuses to read if that might reach the delivery limit.
func (q *Queue) checkDeliveries(ctx context.Context, until int) error {
	if until == 0 {
		return nil
	}
	met, err := q.knownDeliveries(ctx)
	if err == nil && met >= until {
		err = q.tooManyDeliveries(met)
	}
	return err
}

func (q *Queue) tooManyDeliveries(met int) error {
	return fmt.Errorf("amqp: %s is not read: a message in it was delivered %d times, and the broker removes it at %d (its delivery limit); %d deliveries are left for a replay or a purge. "+
		"Raise the limit, by a policy or the queue's arguments, or set DeliveryLimit if it is higher", q.info.DLQ, met, q.limit, max(0, q.limit-2-met))
}

// recordDeliveries stores the highest delivery count, so that the next scan is refused in time. Only a scan of the
// whole DLQ may lower it.
func (q *Queue) recordDeliveries(ctx context.Context, met int, whole bool) error {
	before, err := q.knownDeliveries(ctx)
	if err != nil || met == before || met < before && !whole {
		return err
	}
	return q.Append(ctx, driver.Entry{Key: deliveriesKey, Value: fmt.Append(nil, met)})
}

var _ deadletter.ArrivalCounter = (*deadReader)(nil)
