package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/internal/wirename"
)

// The state of a DLQ is one message in its own queue, "<dlq>.state". One process at a time gets it and returns it, or
// writes a new one and acks it. A process that dies between the write and the ack leaves two; the next reader merges
// them.
const (
	// maxStateReads is the number of reads after which the message is rewritten. The log of a quorum queue is only
	// truncated up to its oldest message, and each read adds to it.
	maxStateReads = 1000
	// stateReturnTimeout is how long the state may be missing after its reader has died.
	stateReturnTimeout = 2 * time.Second
)

// Load implements [driver.DLQ].
func (q *Queue) Load(ctx context.Context) (driver.State, error) {
	snap, err := q.updateState(ctx, nil)
	return snap.State(), err
}

// Append implements [driver.DLQ].
func (q *Queue) Append(ctx context.Context, entries ...driver.Entry) error {
	_, err := q.updateState(ctx, entries)
	return err
}

// updateState reads the state and applies entries. It is empty before the first write.
func (q *Queue) updateState(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.SendTimeout, fmt.Errorf("not within %s", q.SendTimeout))
	defer cancel()
	select {
	case q.stateSemaphore <- struct{}{}:
		defer func() { <-q.stateSemaphore }()
	case <-ctx.Done():
		return snap, q.stateInUse(context.Cause(ctx))
	}
	conn, err := q.stateLink.Get(ctx)
	if err != nil {
		return snap, err
	}
	there, err := q.provisionState(conn, len(entries) > 0)
	if err != nil || !there {
		return snap, err
	}
	for {
		err = declareFence(conn, q.fenceName(turnLock))
		if !errors.Is(err, errFenced) {
			break
		}
		if err := wait.For(ctx, pollPause/5); err != nil {
			return snap, q.stateInUse(context.Cause(ctx))
		}
	}
	if err != nil {
		return snap, err
	}
	defer func() { err = errors.Join(err, deleteFence(conn, q.fenceName(turnLock))) }()
	ch, err := conn.Channel()
	if err != nil {
		return snap, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close() // returns what was not acked
	found, err := q.receiveState(ctx, ch, &snap)
	if err != nil {
		return snap, err
	}
	n := 0
	if len(found) > 0 {
		n, _ = wire.DeliveryCount(found[0].Headers)
	}
	if changed := snap.Apply(entries); !changed && len(found) <= 1 && n < maxStateReads {
		if len(found) == 0 {
			return snap, nil
		}
		return snap, found[0].Nack(false, true)
	}
	return snap, q.writeState(ctx, ch, found, &snap)
}

func (q *Queue) stateInUse(err error) error {
	return fmt.Errorf("amqp: the state of %s: other processes hold it: %w", q.info.DLQ, err)
}

// receiveState gets all messages of the state's queue. The queue is empty before the first write, and briefly after a
// reader has died.
func (q *Queue) receiveState(ctx context.Context, ch *amqp091.Channel, snap *driver.Snapshot) (found []amqp091.Delivery, err error) {
	state := q.info.DLQ + wirename.StateSuffix
	for began := time.Now(); ; {
		d, ok, err := ch.Get(state, false)
		if err != nil {
			return nil, fmt.Errorf("amqp: reading %s: %w", state, err)
		}
		if ok {
			one, err := driver.ReadSnapshot(d.Body)
			if err != nil {
				return nil, fmt.Errorf("amqp: queue %s: %w", state, err)
			}
			snap.Merge(one)
			found = append(found, d)
			continue
		}
		if len(found) > 0 || q.stateIsNew.Load() || time.Since(began) > stateReturnTimeout {
			return found, nil
		}
		if err := wait.For(ctx, pollPause); err != nil {
			return nil, q.stateInUse(context.Cause(ctx))
		}
	}
}

// writeState writes the new state and then acks the old messages.
func (q *Queue) writeState(ctx context.Context, ch *amqp091.Channel, found []amqp091.Delivery, snap *driver.Snapshot) error {
	state := q.info.DLQ + wirename.StateSuffix
	body, err := snap.Bytes()
	if err != nil {
		return fmt.Errorf("amqp: writing the state of %s: %w", q.info.DLQ, err)
	}
	if err := ch.Confirm(false); err != nil {
		return fmt.Errorf("amqp: asking for confirms: %w", err)
	}
	returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
	sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", state, true, false, amqp091.Publishing{
		ContentType: "application/json", DeliveryMode: amqp091.Persistent, Body: body,
	})
	if err != nil {
		return fmt.Errorf("amqp: publishing to queue %s: %w", state, err)
	}
	ok, err := sent.WaitContext(ctx)
	switch {
	case err != nil:
	case !ok:
		err = link.ErrRefused
	case len(returns) > 0: // a return comes before the confirm
		err = link.ErrNoQueue
	}
	if err != nil {
		return fmt.Errorf("amqp: publishing to queue %s: %w", state, err)
	}
	q.stateIsNew.Store(false)
	for _, d := range found {
		if err := d.Ack(false); err != nil {
			return fmt.Errorf("amqp: acking in queue %s: %w", state, err)
		}
	}
	_, _, err = link.Stat(ch, state) // after the answer the broker has the acks
	return err
}

// provisionState creates the state's queue if create is set.
func (q *Queue) provisionState(conn *amqp091.Connection, create bool) (there bool, err error) {
	state := q.info.DLQ + wirename.StateSuffix
	ch, err := conn.Channel()
	if err != nil {
		return false, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer func() { _ = ch.Close() }()
	_, _, err = link.Stat(ch, state)
	if !link.IsNotFound(err) {
		return err == nil, err
	}
	args := layout.UnlimitedArgs()
	switch {
	case !create:
		return false, nil
	case q.NoProvisioning:
		return false, fmt.Errorf("amqp: queue %s is missing, and NoProvisioning is set: declare it durable with the arguments %s", state, wire.ArgsText(args))
	}
	if ch, err = conn.Channel(); err != nil {
		return false, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	if _, err := ch.QueueDeclare(state, true, false, false, false, args); err != nil {
		return false, fmt.Errorf("amqp: declaring queue %s with %s: %w", state, wire.ArgsText(args), err)
	}
	q.stateIsNew.Store(true)
	return true, nil
}
