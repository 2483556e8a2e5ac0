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
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
)

// The state of a DLQ is one message in the queue "<dlq>.state". One process at a time gets it and returns it, or
// writes one and acks the old. A process that dies between the write and the ack leaves two; the next reader merges
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

// updateState reads the state, empty before the first write, and applies entries. A denial may end with another login.
func (q *Queue) updateState(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, err error) {
	snap, err = q.updateStateOnce(ctx, entries)
	if link.IsDenied(err) && q.stateLink.Drop() {
		snap, err = q.updateStateOnce(ctx, entries)
	}
	return snap, err
}

func (q *Queue) updateStateOnce(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.SendTimeout, fmt.Errorf("not within %s", q.SendTimeout))
	defer cancel()
	select {
	case q.semaphore <- struct{}{}:
		defer func() { <-q.semaphore }()
	case <-ctx.Done():
		return snap, q.stateInUse(context.Cause(ctx))
	}
	conn, err := q.stateLink.Get(ctx)
	if err != nil {
		return snap, err
	}
	there, err := q.provisionState(ctx, len(entries) > 0)
	if err != nil || !there {
		return snap, err
	}
	turn := LockQueue(q.info.DLQ, turnLock)
	for {
		err = declareLock(conn, turn)
		if !errors.Is(err, errLocked) {
			break
		}
		if err := wait.For(ctx, pollPause/5); err != nil {
			return snap, q.stateInUse(context.Cause(ctx))
		}
	}
	if err != nil {
		return snap, err
	}
	defer func() { err = errors.Join(err, deleteLock(conn, turn)) }()
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
	return fmt.Errorf("amqp: the state in %s: other processes hold it: %w", q.stateQueue, err)
}

// receiveState gets all messages of the state's queue. It is empty before the first write, and briefly after a
// reader has died.
func (q *Queue) receiveState(ctx context.Context, ch *amqp091.Channel, snap *driver.Snapshot) (found []amqp091.Delivery, err error) {
	for began := time.Now(); ; {
		d, ok, err := ch.Get(q.stateQueue, false)
		if err != nil {
			return nil, fmt.Errorf("amqp: reading %s: %w", q.stateQueue, err)
		}
		if ok {
			one, err := driver.ReadSnapshot(d.Body)
			if err != nil {
				return nil, fmt.Errorf("amqp: queue %s: %w", q.stateQueue, err)
			}
			snap.Merge(one)
			found = append(found, d)
			continue
		}
		if len(found) > 0 || q.isNew.Load() || time.Since(began) > stateReturnTimeout {
			return found, nil
		}
		if err := wait.For(ctx, pollPause); err != nil {
			return nil, q.stateInUse(context.Cause(ctx))
		}
	}
}

// writeState writes the new state and then acks the old messages.
func (q *Queue) writeState(ctx context.Context, ch *amqp091.Channel, found []amqp091.Delivery, snap *driver.Snapshot) error {
	body, err := snap.Bytes()
	if err != nil {
		return fmt.Errorf("amqp: writing the state to %s: %w", q.stateQueue, err)
	}
	if err := q.stateSender.Send(ctx, "", q.stateQueue, amqp091.Publishing{ContentType: "application/json", DeliveryMode: amqp091.Persistent, Body: body}); err != nil {
		return err
	}
	q.isNew.Store(false)
	for _, d := range found {
		if err := d.Ack(false); err != nil {
			return fmt.Errorf("amqp: acking in queue %s: %w", q.stateQueue, err)
		}
	}
	_, err = link.Stat(ch, q.stateQueue) // after the answer the broker has the acks
	return err
}

// provisionState creates the state's queue if create is set.
func (q *Queue) provisionState(ctx context.Context, create bool) (there bool, err error) {
	if _, err = q.stateLink.Stat(ctx, q.stateQueue); !link.IsNotFound(err) {
		return err == nil, err
	}
	args := layout.UnlimitedArgs()
	switch {
	case !create:
		return false, nil
	case q.NoProvisioning:
		return false, fmt.Errorf("amqp: queue %s is missing, and NoProvisioning is set: declare it durable with the arguments %s", q.stateQueue, wire.ArgsText(args))
	}
	_, err = link.Call(ctx, q.stateLink, q.stateQueue, func(ch *amqp091.Channel) (amqp091.Queue, error) {
		return ch.QueueDeclare(q.stateQueue, true, false, false, false, args)
	})
	if err != nil {
		return false, fmt.Errorf("amqp: declaring queue %s with %s: %w", q.stateQueue, wire.ArgsText(args), err)
	}
	q.isNew.Store(true)
	return true, nil
}
