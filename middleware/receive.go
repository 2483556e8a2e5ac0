package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

var (
	// ErrReceiverClosed is what Receive answers when its subscription has ended.
	ErrReceiverClosed = errors.New("receive: the subscription has ended")
	// ErrSettled is what is answered about a message that was acked.
	ErrSettled = errors.New("receive: the message is acked")
	// ErrVisible is what is answered about a message whose invisible time is over:
	// it is on its way to its next attempt, or to the DLQ.
	ErrVisible = errors.New("receive: the message's invisible time is over; it comes again")
	// ErrAbandoned is the answer about a message that this process lost before it was settled.
	ErrAbandoned = engine.ErrAbandoned
)

// Receiver gives messages to a program that asks for them, when it has time for
// some: no handler, no Router. It is what RocketMQ calls a simple consumer.
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
// A message that is not acked within its invisible time has had an attempt, and
// comes again at once, by itself: what its policy counts (MaxRetries, MaxAge,
// Invalid, the DLQ and its reasons) holds as for a handler. Its Backoff and Timeout
// do not: the invisible time stands for both. To try again later than now,
// ChangeInvisible and leave the message alone.
//
// On Kafka and RabbitMQ the invisible time is a lease within this process, and a
// process that dies gives its messages back at once. On SQS it is the queue's
// visibility, which a process that dies leaves to run out. Nothing is asked for
// that nobody wants: what the broker's client reads ahead is not invisible, and not
// counted. Where messages of one key run one after another (Kafka), so they are
// received.
//
// A Receiver is safe for concurrent use.
type Receiver struct {
	messages <-chan *message.Message
	cancel   context.CancelFunc
	turn     chan struct{} // held by the Receive that looks at messages

	first *message.Message // taken, and not given out: see Receive. Guarded by turn
}

// NewReceiver subscribes to a topic. The subscriber must be one of redeliver's. ctx
// bounds the subscription's life; Close, of the Receiver or of the subscriber, ends
// it before. What is not acked then stays unacked and comes back, uncounted.
func NewReceiver(ctx context.Context, sub message.Subscriber, topic string) (*Receiver, error) {
	ctx, cancel := context.WithCancel(ctx)
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("receive: subscribing to %s: %w", topic, err)
	}
	return &Receiver{messages: messages, cancel: cancel, turn: make(chan struct{}, 1)}, nil
}

// Close ends the subscription. It does not wait: the subscriber's own Close does.
func (r *Receiver) Close() { r.cancel() }

// Receive waits until there are messages, and returns what comes within 5 ms of the
// first, up to most. Nobody else gets them for the time invisible. The error is ctx's
// when that ends first, and ErrReceiverClosed when there will be none.
//
// most must be at least 1 (more than the subscriber's MaxInFlight never come), and
// invisible above 0 and not above the Timeout of the subscription's policy, for
// which the broker was checked at the start; NoTimeout in the policy allows any.
func (r *Receiver) Receive(ctx context.Context, most int, invisible time.Duration) ([]*Received, error) {
	if most < 1 {
		return nil, fmt.Errorf("receive: at most %d messages: ask for at least 1", most)
	}
	if invisible <= 0 {
		return nil, fmt.Errorf("receive: invisible for %s: must be above 0", invisible)
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
	}
	defer func() { <-r.turn }()
	var all []*Received
	var enough <-chan time.Time // nil until there is one
	for len(all) < most {
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
				r.first = msg // for a Receive that asks for less
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
			enough = time.After(gatherFor)
		}
	}
	return all, nil
}

// gatherFor is how long Receive looks for more messages when it has one: they come
// from the broker's client one by one.
const gatherFor = 5 * time.Millisecond

// next is the next message, or nil and why there is none.
func (r *Receiver) next(ctx context.Context, enough <-chan time.Time) (*message.Message, error) {
	if msg := r.first; msg != nil {
		r.first = nil
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
	// Message is the message. Its context ends with its invisible time, and when
	// it is lost to this process; redeliver.FromContext finds its state there. To
	// settle it, call the methods of Received and not those of Message.
	Message *message.Message

	d   *engine.Delivery
	end context.CancelCauseFunc

	mu      sync.Mutex
	lease   *time.Timer
	begun   time.Time
	settled error // not nil once it is: why nothing may be done about it any more
}

// receive begins the lease of a message. It is nil for one that must no longer run.
func receive(msg *message.Message, invisible time.Duration) (*Received, error) {
	d := engine.FromContext(msg.Context())
	if d == nil {
		msg.Nack()
		return nil, ErrNoSubscription
	}
	d.Sub().Answers()
	if most := d.Sub().Policy.Timeout; most > 0 && invisible > most {
		return nil, fmt.Errorf("receive: invisible for %s: must not be above the policy's Timeout of %s", invisible, most)
	}
	if d.Lost() {
		msg.Nack()
		return nil, nil
	}
	if err := d.Invalid(); err != nil {
		go failReceived(msg, d, err)
		return nil, nil //nolint:nilerr // it is the policy's answer about this message
	}
	ctx := d.BeginSpan(msg.Context())
	m := &Received{Message: msg, d: d, begun: time.Now()}
	ctx, m.end = context.WithCancelCause(ctx)
	msg.SetContext(ctx)
	m.lease = time.AfterFunc(invisible, m.expire)
	return m, nil
}

// Ack says that the message is done: it is not delivered again. After its invisible
// time the error is ErrVisible, after an Ack ErrSettled, and
// ErrAbandoned where it was lost to this process meanwhile: it may run again then.
func (m *Received) Ack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.over(); err != nil {
		return err
	}
	m.settled = ErrSettled
	m.tell(nil)
	m.d.EndSpan(redeliver.OutcomeSucceeded, nil)
	m.end(nil)
	m.Message.Ack()
	return nil
}

// ChangeInvisible sets the invisible time anew, which counts from now. With 0 the
// message comes again now: an attempt has failed. It is refused, with the errors of
// Ack, when the message is acked or its time is over, and like Receive when the time
// is too long.
func (m *Received) ChangeInvisible(invisible time.Duration) error {
	if most := m.d.Sub().Policy.Timeout; invisible < 0 || most > 0 && invisible > most {
		return fmt.Errorf("receive: invisible for %s: must not be below 0 or above the policy's Timeout of %s", invisible, most)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.over(); err != nil {
		return err
	}
	m.lease.Reset(invisible)
	return nil
}

// over stops the lease of a message that is still ours, or says why it is not.
func (m *Received) over() error {
	switch {
	case m.settled != nil:
		return m.settled
	case m.d.Lost():
		return ErrAbandoned
	case !m.lease.Stop(): // expire has begun
		return ErrVisible
	default:
		return nil
	}
}

// expire is the end of the invisible time: an attempt has failed.
func (m *Received) expire() {
	m.mu.Lock()
	m.settled = ErrVisible
	if m.d.Lost() {
		m.mu.Unlock()
		m.d.EndSpan(redeliver.OutcomeAbandoned, context.Cause(m.d.Session()))
		m.Message.Nack()
		return
	}
	err := fmt.Errorf("not acked within %s: %w", time.Since(m.begun).Round(time.Millisecond), redeliver.ErrTimeout)
	m.tell(err)
	m.mu.Unlock()
	m.end(err)
	failReceived(m.Message, m.d, redeliver.RetryAfter(err, 0))
}

// tell reports the attempt's end.
func (m *Received) tell(err error) {
	if m.d.Sub().Wants(redeliver.Attempted{}) {
		m.d.Sub().Tell(redeliver.Attempted{State: m.d.State(), Err: err, Start: m.begun, Took: time.Since(m.begun)})
	}
}

// failReceived does what the policy says of a failure, and settles the message.
func failReceived(msg *message.Message, d *engine.Delivery, err error) {
	if d.FailLater(err) {
		msg.Ack()
	} else {
		msg.Nack()
	}
}
