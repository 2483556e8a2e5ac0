package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/contextkey"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/observe"
)

var (
	// ErrReceiverClosed is the error of Receive when its subscription has ended.
	ErrReceiverClosed = errors.New("receive: the subscription has ended")
	// ErrSettled is the error for a message that was acked.
	ErrSettled = errors.New("receive: the message is acked")
	// ErrVisibleAgain is the error for a message whose invisible time is over: it comes again, or goes to the DLQ.
	ErrVisibleAgain = errors.New("receive: the message's invisible time is over; it comes again")
	// ErrAbandoned is the error for a message that this process lost before it was settled.
	ErrAbandoned = engine.ErrAbandoned
)

// Receiver passes messages to a program that requests them, without a handler or a Router. RocketMQ calls that a simple
// consumer.
//
//	r, err := middleware.NewReceiver(ctx, billing.Subscriber(), "orders")
//	for {
//		received, err := r.Receive(ctx, 16, 30*time.Second)
//		...
//		for _, m := range received {
//			if charge(m.Message) == nil {
//				m.Ack()
//			}
//		}
//	}
//
// A message that is not acked within its invisible time has had a failed attempt, and comes again at once. MaxRetries, MaxAge, Invalid
// and the DLQ of the policy apply as for a handler. Backoff and Timeout do not apply: the invisible time replaces both.
// To have the message again later, call ChangeInvisible and do not ack it.
//
// When a process dies, its messages come back at once on Kafka and RabbitMQ, where the invisible time is known only to the process. On
// SQS the invisible time is the visibility timeout, and the messages come back after it. For messages that the broker's client has read
// ahead, no invisible time and no attempt has begun. If messages of one key run one after another (Kafka), they are received one after
// another.
//
// A Receiver is safe for concurrent use.
type Receiver struct {
	messages <-chan *message.Message
	cancel   context.CancelFunc
	reading  chan struct{} // full while a Receive reads messages

	pushedBack *message.Message // read by a Receive that could not return it. Guarded by reading
}

// NewReceiver subscribes to a topic. The subscriber must be one of redeliver's. The subscription ends with ctx, or when the Receiver or
// the subscriber is closed. Messages that are not acked by then come back, and no attempt is counted.
//
// NewReceiver refuses a policy with OrderBlocking: when the invisible time of a message is over, its work may go on, so it cannot
// keep its place.
func NewReceiver(ctx context.Context, sub message.Subscriber, topic string) (*Receiver, error) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, contextkey.Receiver{}, true))
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("receive: subscribing to %s: %w", topic, err)
	}
	return &Receiver{messages: messages, cancel: cancel, reading: make(chan struct{}, 1)}, nil
}

// Close ends the subscription. Unlike Close of the subscriber, it does not wait for the end.
func (r *Receiver) Close() { r.cancel() }

// Receive waits for a message, and returns it together with those that come within 5 ms after it, at most maxMessages. No other
// consumer of the group gets them for the time invisible. The error is that of ctx if ctx ends first, and ErrReceiverClosed
// after the end of the subscription.
//
// maxMessages must be at least 1; Receive never returns more than the subscriber's MaxInFlight and MaxRetriesInFlight
// together. invisible must be above 0 and not above the Timeout of the subscription's policy; NoTimeout in the policy
// allows any.
func (r *Receiver) Receive(ctx context.Context, maxMessages int, invisible time.Duration) ([]*Received, error) {
	if maxMessages < 1 {
		return nil, fmt.Errorf("receive: at most %d messages: ask for at least 1", maxMessages)
	}
	if invisible <= 0 {
		return nil, fmt.Errorf("receive: invisible for %s: must be above 0", invisible)
	}
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
	}
	defer func() { <-r.reading }()
	var all []*Received
	var enough <-chan time.Time // nil until there is a message
	for len(all) < maxMessages {
		msg, err := r.next(ctx, enough)
		if msg == nil {
			if len(all) > 0 {
				err = nil
			}
			return all, err
		}
		m, err := receive(msg, invisible)
		if err != nil {
			if !errors.Is(err, ErrNoSubscription) {
				r.pushedBack = msg // for a Receive with a shorter invisible time
			}
			if len(all) > 0 {
				err = nil
			}
			return all, err
		}
		if m != nil {
			all = append(all, m)
		}
		if enough == nil && m != nil {
			enough = time.After(maxGather)
		}
	}
	return all, nil
}

// maxGather is how long Receive waits for more messages when it has one.
const maxGather = 5 * time.Millisecond

// next returns the next message, or an error. When enough receives a value first, next returns nil and no error.
func (r *Receiver) next(ctx context.Context, enough <-chan time.Time) (*message.Message, error) {
	if msg := r.pushedBack; msg != nil {
		r.pushedBack = nil
		return msg, nil
	}
	select {
	case msg, ok := <-r.messages:
		if !ok {
			return nil, ErrReceiverClosed
		}
		return msg, nil
	case <-enough:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
	}
}

// Received is one message that was received. It is safe for concurrent use.
type Received struct {
	// Message is the message. Its context ends with its invisible time, and when it is lost to this process;
	// redeliver.FromContext finds its state there. To settle it, call the methods of Received, not those of Message.
	Message *message.Message

	d   *engine.Delivery
	end context.CancelCauseFunc

	mu      sync.Mutex
	lease   *time.Timer
	begun   time.Time
	settled error // not nil once the message is settled: the error of all methods
}

// receive begins the lease of a message. It returns nil for a message that must not run.
func receive(msg *message.Message, invisible time.Duration) (*Received, error) {
	d := engine.FromContext(msg.Context())
	if d == nil {
		msg.Nack()
		return nil, ErrNoSubscription
	}
	d.Sub().RecordMiddleware()
	if timeout := d.Sub().Policy.Timeout; timeout > 0 && invisible > timeout {
		return nil, fmt.Errorf("receive: invisible for %s: must not be above the policy's Timeout of %s", invisible, timeout)
	}
	if d.Lost() {
		msg.Nack()
		return nil, nil
	}
	if err := d.Invalid(); err != nil {
		go failReceived(msg, d, err)
		return nil, nil //nolint:nilerr // the policy refuses this message
	}
	ctx := d.BeginSpan(msg.Context())
	m := &Received{Message: msg, d: d, begun: time.Now()}
	ctx, m.end = context.WithCancelCause(ctx)
	msg.SetContext(ctx)
	m.lease = time.AfterFunc(invisible, m.expire)
	return m, nil
}

// Ack settles the message. The error is ErrVisibleAgain after its invisible time, ErrSettled after an Ack, and
// ErrAbandoned if it was lost to this process: it may run again then.
func (m *Received) Ack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.endLeaseLocked(); err != nil {
		return err
	}
	m.settled = ErrSettled
	m.reportAttempt(nil)
	m.d.EndSpan(observe.OutcomeSucceeded, nil)
	m.end(nil)
	m.Message.Ack()
	return nil
}

// ChangeInvisible sets a new invisible time, which counts from now. With 0 the message comes again now, after a failed attempt. It
// returns the errors of Ack, and an error when the time is too long.
func (m *Received) ChangeInvisible(invisible time.Duration) error {
	if timeout := m.d.Sub().Policy.Timeout; invisible < 0 || timeout > 0 && invisible > timeout {
		return fmt.Errorf("receive: invisible for %s: must not be below 0 or above the policy's Timeout of %s", invisible, timeout)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.endLeaseLocked(); err != nil {
		return err
	}
	m.lease.Reset(invisible)
	return nil
}

// endLeaseLocked stops the lease. It returns an error if the message is settled or lost, or its lease has ended.
func (m *Received) endLeaseLocked() error {
	switch {
	case m.settled != nil:
		return m.settled
	case m.d.Lost():
		return ErrAbandoned
	case !m.lease.Stop(): // expire has begun
		return ErrVisibleAgain
	default:
		return nil
	}
}

// expire fails the attempt at the end of the invisible time.
func (m *Received) expire() {
	m.mu.Lock()
	m.settled = ErrVisibleAgain
	if m.d.Lost() {
		m.mu.Unlock()
		m.d.EndSpan(observe.OutcomeAbandoned, context.Cause(m.d.Session()))
		m.Message.Nack()
		return
	}
	err := fmt.Errorf("not acked within %s: %w", time.Since(m.begun).Round(time.Millisecond), redeliver.ErrTimeout)
	m.reportAttempt(err)
	m.mu.Unlock()
	m.end(err)
	failReceived(m.Message, m.d, redeliver.RetryAfter(err, 0))
}

func (m *Received) reportAttempt(err error) {
	if m.d.Sub().Wants(redeliver.Attempted{}) {
		m.d.Sub().Emit(redeliver.Attempted{State: m.d.State(), Err: err, Start: m.begun, Took: time.Since(m.begun)})
	}
}

// failReceived carries out the policy's decision about a failure, and settles the Watermill message.
func failReceived(msg *message.Message, d *engine.Delivery, err error) {
	if d.FailLater(err) {
		msg.Ack()
	} else {
		msg.Nack()
	}
}
