package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
)

// laneKind is what a lane reads.
type laneKind uint8

const (
	originLane laneKind = iota
	backLane            // what comes back to the group
	delayLane           // what waits
)

// lane is one Subscribe of the user's subscriber, which delivers one message at a
// time and the next one when that is acked. It belongs to the goroutine that runs it.
type lane struct {
	r     *reader
	kind  laneKind
	topic string
	nth   int // of the delay topics, from 0

	in     <-chan *message.Message
	cancel context.CancelFunc
	acked  *message.Message // the last, as long as the subscriber may still be at it
}

const (
	// ackPatience is how long a lane that ends waits for the subscriber to have
	// told its broker of the last ack: it does that after Ack, within the context
	// that is about to be cancelled. Then it ends the message's own context.
	ackPatience = 2 * time.Second
	// ackUnseen is that time for a message whose context never ends.
	ackUnseen = 200 * time.Millisecond

	longestPause = 10 * time.Second // between two Subscribes
)

var errEnded = errors.New("the subscriber has closed the channel by itself")

// subscribe begins to read. What a message's context ends with is the lane's: the
// end of Subscribe's context must not cut off what is in flight.
func (l *lane) subscribe(ctx context.Context) error {
	in, cancel, err := subscribe(ctx, l.r.values, l.r.client.cfg.Subscriber, l.topic)
	if err == nil {
		l.in, l.cancel = in, cancel
	}
	return err
}

// run reads until ctx ends. A channel that is closed before that is subscribed to
// again: a message that its subscriber cannot read ends some of them.
func (l *lane) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff(backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(0))
	for {
		began := time.Now()
		l.read(ctx)
		l.leave()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestPause {
			pause.Reset()
		}
		err := errEnded
		l.r.lost(l.topic, err)
		for err != nil {
			timer := time.NewTimer(pause.NextBackOff())
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err = l.subscribe(ctx)
		}
		l.r.found()
	}
}

// read takes messages until ctx or the channel ends.
func (l *lane) read(ctx context.Context) {
	for {
		if !l.r.open(ctx) {
			return
		}
		select {
		case raw, ok := <-l.in:
			if !ok {
				return
			}
			l.acked = nil
			if l.take(ctx, raw) {
				raw.Ack()
				l.acked = raw
			} else {
				raw.Nack()
			}
		case <-ctx.Done():
			return
		}
	}
}

// take does what is to be done with a message, and tells whether it is settled.
func (l *lane) take(ctx context.Context, raw *message.Message) bool {
	if l.kind == delayLane {
		return l.wait(ctx, raw)
	}
	return l.deliver(ctx, raw)
}

// leave ends the subscription. What the subscriber still has is given back.
func (l *lane) leave() {
	awaitAck(l.acked)
	l.acked = nil
	l.cancel()
	go giveBack(l.in)
}

// awaitAck waits until the subscriber has told its broker of an ack, or has had the time;
// nil for none.
func awaitAck(acked *message.Message) {
	if acked == nil {
		return
	}
	patience := ackPatience
	done := acked.Context().Done()
	if done == nil {
		patience = ackUnseen
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// open waits until the intake may go on. It is false when ctx has ended before.
func (r *reader) open(ctx context.Context) bool {
	for r.sub.Gate.Closed() {
		select {
		case <-r.sub.Gate.Opened():
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}
