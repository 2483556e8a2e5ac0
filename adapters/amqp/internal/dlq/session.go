package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/scan"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// deadSession is a connection with its locks and unsettled messages. Its end frees the locks and the messages. It
// implements [driver.Session].
type deadSession struct {
	q     *Queue
	link  *link.Link
	conn  *amqp091.Connection
	locks []string

	scanner *scan.Scanner // of the open reader
}

// Check implements [driver.Session].
func (s *deadSession) Check() error {
	if s.conn.IsClosed() {
		return fmt.Errorf("%w: the connection that held %s is gone, and the broker has returned the unacked messages", deadletter.ErrClaimLost, s.q.info.DLQ)
	}
	return nil
}

// Lock implements [driver.Session].
func (s *deadSession) Lock(ctx context.Context, lock string, h deadletter.Holder) error {
	if lock == driver.ClaimLock {
		if err := s.q.checkExists(ctx, s.q.info.ReplayTo, "it is the retry queue of %[2]s, which has never been subscribed to"); err != nil {
			return err
		}
	}
	err := declareLock(s.conn, LockQueue(s.q.info.DLQ, lock))
	if errors.Is(err, errLocked) {
		held := &deadletter.HeldError{DLQ: s.q.info.DLQ, Holder: h}
		if lock == driver.ClaimLock {
			if held.Holder, _, err = s.q.LockHolder(ctx, lock); err != nil {
				return err
			}
		}
		return held
	}
	if err != nil {
		return err
	}
	s.locks = append(s.locks, lock)
	s.useLock(LockQueue(s.q.info.DLQ, lock))
	if lock == driver.ReadLock {
		return s.q.waitForNoConsumers(ctx, s.conn)
	}
	value, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	return s.q.Append(ctx, driver.Entry{Key: holderPrefix + lock, Value: value})
}

// useLock consumes from a lock's queue, which stays empty. A policy with expires would delete an unused queue, and with
// it the lock. Without the right to read it, the lock is left as it is.
func (s *deadSession) useLock(queue string) {
	if ch, err := s.conn.Channel(); err == nil {
		_, _ = ch.Consume(queue, "", true, true, false, false, nil)
	}
}

// Close implements [driver.Session].
func (s *deadSession) Close(context.Context) error {
	s.q.mu.Lock()
	delete(s.q.sessions, s)
	s.q.mu.Unlock()
	defer s.link.Close()
	var errs []error
	for _, lock := range s.locks { // the end of the connection would release them a little later
		if !s.conn.IsClosed() {
			errs = append(errs, deleteLock(s.conn, LockQueue(s.q.info.DLQ, lock)))
		}
	}
	return errors.Join(errs...)
}

// Write implements [driver.Session]. The broker's own headers cannot be written into the DLQ, so redeliver's headers
// keep them.
func (s *deadSession) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) []error {
	frame, keys := s.q.Sender.FrameMax(), s.q.Keys
	if to == driver.DestinationGroup {
		return s.writeAll(ctx, msgs, s.q.info.ReplayTo, func(m *deadletter.Message) (amqp091.Publishing, error) {
			st := driver.ReplayState(m, s.q.info)
			return recordFrom(m, m.Headers, keys).WaitingCopy(&st, time.Time{}, frame, wire.WaitingRoom)
		})
	}
	return s.writeAll(ctx, msgs, s.q.info.DLQ, func(m *deadletter.Message) (amqp091.Publishing, error) {
		if m.Writer == deadletter.WriterRedeliver || m.Writer == deadletter.WriterRabbitMQ {
			return recordFrom(m, m.Headers, keys).DeadCopy(&m.State, frame), nil
		}
		return recordFrom(m, slices.Concat(m.Headers, m.Foreign), keys).Publishing(nil), nil
	})
}

func (s *deadSession) writeAll(ctx context.Context, msgs []*deadletter.Message, queue string, compose func(*deadletter.Message) (amqp091.Publishing, error)) []error {
	timeout := s.q.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	return s.q.Sender.SendAll(ctx, len(msgs), func(i int) (link.Outgoing, error) {
		p, err := compose(msgs[i])
		return link.Outgoing{Publishing: p, Key: queue}, err
	})
}

// Remove implements [driver.Session].
func (s *deadSession) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	marks := make([]scan.Mark, len(msgs))
	for i, m := range msgs {
		at, ok := m.Native.(*deadRecord)
		if !ok {
			return fmt.Errorf("amqp: message %s at %s was read by another adapter (%T)", m.ID, m.Position, m.Native)
		}
		marks[i] = at.mark
	}
	if len(entries) > 0 {
		if err := s.q.Append(ctx, entries...); err != nil {
			return err
		}
	}
	if len(marks) == 0 {
		return nil
	}
	_, err := s.scanner.Ack(marks)
	return err
}

// Open implements [driver.Session].
func (s *deadSession) Open(ctx context.Context, _ deadletter.From) (driver.Reader, error) {
	r := &deadReader{s: s}
	if s.q.limit > 0 {
		r.maxDeliveries = max(1, s.q.limit/2)
		if slices.Contains(s.locks, driver.ClaimLock) {
			r.maxDeliveries = max(1, s.q.limit-2)
		}
	}
	err := s.q.checkDeliveries(ctx, r.maxDeliveries)
	if err == nil {
		s.scanner, err = scan.New(s.conn, s.q.info.DLQ, s.q.RetryBytes)
	}
	return r, err
}
