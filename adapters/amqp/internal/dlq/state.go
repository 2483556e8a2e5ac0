package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
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

// state reads and writes the state.
type state struct {
	queue          string
	turn           string // the lock that is held while the state is read or written
	link           *link.Link
	sender         *link.Sender
	timeout        time.Duration
	noProvisioning bool
	semaphore      chan struct{} // held while this process reads or writes the state
	isNew          atomic.Bool   // this process created the queue, and nothing is written yet
}

// Load implements [driver.DLQ].
func (q *Queue) Load(ctx context.Context) (driver.State, error) {
	snap, err := q.state.update(ctx, nil)
	return snap.State(), err
}

// Append implements [driver.DLQ].
func (q *Queue) Append(ctx context.Context, entries ...driver.Entry) error {
	_, err := q.state.update(ctx, entries)
	return err
}

// update reads the state, empty before the first write, and applies entries.
func (s *state) update(ctx context.Context, entries []driver.Entry) (snap driver.Snapshot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("not within %s", s.timeout))
	defer cancel()
	select {
	case s.semaphore <- struct{}{}:
		defer func() { <-s.semaphore }()
	case <-ctx.Done():
		return snap, s.inUse(context.Cause(ctx))
	}
	conn, err := s.link.Get(ctx)
	if err != nil {
		return snap, err
	}
	there, err := s.provision(ctx, len(entries) > 0)
	if err != nil || !there {
		return snap, err
	}
	for {
		err = declareLock(conn, s.turn)
		if !errors.Is(err, errLocked) {
			break
		}
		if err := wait.For(ctx, pollPause/5); err != nil {
			return snap, s.inUse(context.Cause(ctx))
		}
	}
	if err != nil {
		return snap, err
	}
	defer func() { err = errors.Join(err, deleteLock(conn, s.turn)) }()
	ch, err := conn.Channel()
	if err != nil {
		return snap, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close() // returns what was not acked
	found, err := s.receive(ctx, ch, &snap)
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
	return snap, s.write(ctx, ch, found, &snap)
}

func (s *state) inUse(err error) error {
	return fmt.Errorf("amqp: the state in %s: other processes hold it: %w", s.queue, err)
}

// receive gets all messages of the state's queue. The queue is empty before the first write, and briefly after a
// reader has died.
func (s *state) receive(ctx context.Context, ch *amqp091.Channel, snap *driver.Snapshot) (found []amqp091.Delivery, err error) {
	for began := time.Now(); ; {
		d, ok, err := ch.Get(s.queue, false)
		if err != nil {
			return nil, fmt.Errorf("amqp: reading %s: %w", s.queue, err)
		}
		if ok {
			one, err := driver.ReadSnapshot(d.Body)
			if err != nil {
				return nil, fmt.Errorf("amqp: queue %s: %w", s.queue, err)
			}
			snap.Merge(one)
			found = append(found, d)
			continue
		}
		if len(found) > 0 || s.isNew.Load() || time.Since(began) > stateReturnTimeout {
			return found, nil
		}
		if err := wait.For(ctx, pollPause); err != nil {
			return nil, s.inUse(context.Cause(ctx))
		}
	}
}

// write writes the new state and then acks the old messages.
func (s *state) write(ctx context.Context, ch *amqp091.Channel, found []amqp091.Delivery, snap *driver.Snapshot) error {
	body, err := snap.Bytes()
	if err != nil {
		return fmt.Errorf("amqp: writing the state to %s: %w", s.queue, err)
	}
	if err := s.sender.Send(ctx, "", s.queue, amqp091.Publishing{ContentType: "application/json", DeliveryMode: amqp091.Persistent, Body: body}); err != nil {
		return err
	}
	s.isNew.Store(false)
	for _, d := range found {
		if err := d.Ack(false); err != nil {
			return fmt.Errorf("amqp: acking in queue %s: %w", s.queue, err)
		}
	}
	_, err = link.Stat(ch, s.queue) // after the answer the broker has the acks
	return err
}

// provision creates the state's queue if create is set.
func (s *state) provision(ctx context.Context, create bool) (there bool, err error) {
	if _, err = s.link.Stat(ctx, s.queue); !link.IsNotFound(err) {
		return err == nil, err
	}
	args := layout.UnlimitedArgs()
	switch {
	case !create:
		return false, nil
	case s.noProvisioning:
		return false, fmt.Errorf("amqp: queue %s is missing, and NoProvisioning is set: declare it durable with the arguments %s", s.queue, wire.ArgsText(args))
	}
	_, err = link.Call(ctx, s.link, s.queue, func(ch *amqp091.Channel) (amqp091.Queue, error) {
		return ch.QueueDeclare(s.queue, true, false, false, false, args)
	})
	if err != nil {
		return false, fmt.Errorf("amqp: declaring queue %s with %s: %w", s.queue, wire.ArgsText(args), err)
	}
	s.isNew.Store(true)
	return true, nil
}
