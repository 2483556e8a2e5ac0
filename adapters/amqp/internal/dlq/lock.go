package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/internal/wirename"
)

// The locks of a DLQ are exclusive, empty queues beside it. RabbitMQ lets only one connection declare such a queue and
// deletes it when that connection ends in any way.
const turnLock = "turn" // held while the state is read or written

const (
	pollPause          = 50 * time.Millisecond // between two tries
	otherReaderTimeout = 10 * time.Second      // how long to wait for other readers of a DLQ
)

// LockQueue returns the name of a lock's queue.
func LockQueue(dlq, lock string) string { return dlq + wirename.StateSuffix + "." + lock }

// LockQueues returns the names of all locks of a DLQ.
func LockQueues(dlq string) (names []string) {
	for _, lock := range []string{driver.ClaimLock, driver.ReadLock, turnLock} {
		names = append(names, LockQueue(dlq, lock))
	}
	return names
}

var errLocked = errors.New("amqp: another connection has it")

// declareLock takes a lock for a connection, or returns errLocked. The lock lasts until deleteLock or the end of
// the connection.
func declareLock(conn *amqp091.Connection, name string) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close()
	_, err = ch.QueueDeclare(name, false, false, true, false, nil)
	switch link.ErrorCode(err) {
	case 0:
	case amqp091.ResourceLocked:
		return errLocked
	case amqp091.AccessRefused:
		return fmt.Errorf("amqp: queue %s, which is the lock of the DLQ, may not be declared: give the user the right to configure it: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("amqp: declaring queue %s: %w", name, err)
	}
	return nil
}

// deleteLock releases a lock.
func deleteLock(conn *amqp091.Connection, name string) error {
	ch, err := conn.Channel()
	if err != nil {
		return nil // the connection has ended, and the lock with it
	}
	defer ch.Close()
	if _, err := ch.QueueDelete(name, false, false, false); err != nil && !conn.IsClosed() {
		return fmt.Errorf("amqp: deleting queue %s: %w", name, err)
	}
	return nil
}

// isLocked reports whether another connection holds a lock.
func (q *Queue) isLocked(ctx context.Context, name string) (bool, error) {
	_, err := q.readLink.Stat(ctx, name)
	switch {
	case link.IsNotFound(err):
		return false, nil
	case link.ErrorCode(err) == amqp091.ResourceLocked:
		return true, nil
	default:
		return false, err
	}
}

// waitForNoConsumers waits until nothing reads the DLQ. A dead reader counts as a consumer exactly until the broker has
// its messages back. A consumer that stays belongs to another program.
func (q *Queue) waitForNoConsumers(ctx context.Context, conn *amqp091.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close()
	for began := time.Now(); ; {
		counts, err := link.ConfirmedStat(ch, q.info.DLQ)
		if err != nil || counts.Consumers == 0 {
			return err
		}
		if time.Since(began) > otherReaderTimeout {
			return fmt.Errorf("amqp: queue %s has %d consumers: their unacked messages cannot be seen. Stop them, and look again", q.info.DLQ, counts.Consumers)
		}
		if err := wait.For(ctx, pollPause); err != nil {
			return fmt.Errorf("amqp: waiting until nobody else reads %s: %w", q.info.DLQ, err)
		}
	}
}
