package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
)

// Suffixes of the queues beside a DLQ. All but the first are fences: exclusive
// queues, which hold nothing. RabbitMQ lets one connection declare such a queue,
// refuses all others, and deletes it with its connection, however that ends.
const (
	stateSuffix = ".state"
	claimSuffix = ".claim" // held by a runner
	scanSuffix  = ".scan"  // held by a runner who reads the DLQ, or is about to
	lookSuffix  = ".look"  // held by who reads the DLQ
	turnSuffix  = ".turn"  // held for the moment in which the state is read or written
)

const (
	glance = 50 * time.Millisecond // between two tries
	others = 10 * time.Second      // for which a DLQ may be read by somebody else
)

func (q *deadLetters) fence(suffix string) string { return q.info.DLQ + stateSuffix + suffix }

var errFenced = errors.New("amqp: another connection has it")

// raise takes a fence for a connection, or returns errFenced. It stands until lower
// is called or the connection is gone.
func raise(conn *amqp.Connection, name string) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close()
	_, err = ch.QueueDeclare(name, false, false, true, false, nil)
	switch code(err) {
	case 0:
	case amqp.ResourceLocked:
		return errFenced
	case amqp.AccessRefused:
		return fmt.Errorf("amqp: queue %s, which keeps others off while it is there, may not be declared: give the user the right to configure it: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("amqp: declaring queue %s: %w", name, err)
	}
	return nil
}

// lower gives a fence back.
func lower(conn *amqp.Connection, name string) error {
	ch, err := conn.Channel()
	if err != nil {
		return nil // the connection is gone, and the fence with it
	}
	defer ch.Close()
	if _, err := ch.QueueDelete(name, false, false, false); err != nil && !conn.IsClosed() {
		return fmt.Errorf("amqp: deleting queue %s: %w", name, err)
	}
	return nil
}

// pause waits for a moment.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter takes the right to read the DLQ for a connection. While a runner reads, or
// waits for that, another is refused with a deadletter.HeldError; while somebody only
// looks, it waits for the end of that. leave gives it back.
func (q *deadLetters) enter(ctx context.Context, conn *amqp.Connection, runner bool) (leave func() error, err error) {
	fences := []string{q.fence(lookSuffix)}
	if runner { // who has claimed the DLQ: nobody else raises this one
		fences = append(fences, q.fence(scanSuffix))
		if err := raise(conn, fences[1]); err != nil {
			return nil, err
		}
	}
	lowerAll := func(entered bool) (err error) {
		for i, name := range fences {
			if i > 0 || entered {
				err = errors.Join(err, lower(conn, name))
			}
		}
		if entered {
			<-q.reading
		}
		return err
	}
	for {
		if err = q.tryEnter(conn); err == nil {
			break
		}
		if errors.Is(err, errFenced) {
			err = q.hold(ctx, runner)
		}
		if err != nil {
			return nil, errors.Join(err, lowerAll(false))
		}
	}
	if err := q.alone(ctx, conn); err != nil {
		return nil, errors.Join(err, lowerAll(true))
	}
	return func() error { return lowerAll(true) }, nil
}

// hold waits a moment for another who reads, or refuses to.
func (q *deadLetters) hold(ctx context.Context, runner bool) error {
	if !runner {
		reads, err := q.raised(ctx, scanSuffix)
		if err != nil {
			return err
		}
		if reads {
			r, err := q.record(ctx)
			if err != nil {
				return err
			}
			return &deadletter.HeldError{DLQ: q.info.DLQ, Holder: r.Claim.Holder()}
		}
	}
	if err := pause(ctx, 4*glance); err != nil {
		return fmt.Errorf("amqp: waiting until nobody else looks at %s: %w", q.info.DLQ, err)
	}
	return nil
}

// raised tells whether another connection has a fence.
func (q *deadLetters) raised(ctx context.Context, suffix string) (bool, error) {
	ch, err := q.looking.channel(ctx)
	if err != nil {
		return false, err
	}
	defer ch.Close()
	_, _, err = stat(ch, q.fence(suffix))
	switch {
	case gone(err):
		return false, nil
	case code(err) == amqp.ResourceLocked:
		return true, nil
	default:
		return false, err
	}
}

func (q *deadLetters) tryEnter(conn *amqp.Connection) error {
	select {
	case q.reading <- struct{}{}:
	default:
		return errFenced
	}
	err := raise(conn, q.fence(lookSuffix))
	if err != nil {
		<-q.reading
	}
	return err
}

// alone returns when nobody reads the DLQ. One who died is counted as a consumer
// until the broker has what he had in hand: both change at once. A consumer that
// stays is not one of ours.
func (q *deadLetters) alone(ctx context.Context, conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close()
	for began := time.Now(); ; {
		_, consumers, err := certain(ch, q.info.DLQ)
		if err != nil || consumers == 0 {
			return err
		}
		if time.Since(began) > others {
			return fmt.Errorf("amqp: queue %s has %d consumers: what they have in hand cannot be seen. Stop them, and look again", q.info.DLQ, consumers)
		}
		if err := pause(ctx, glance); err != nil {
			return fmt.Errorf("amqp: waiting until nobody else reads %s: %w", q.info.DLQ, err)
		}
	}
}
