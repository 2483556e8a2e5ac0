package amqp

import (
	"sync/atomic"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// intake starts and ends the consumers of a source's channel, one after another: each change of the window needs a new
// one. The lane's goroutine calls its methods.
type intake struct {
	s     *source
	calls chan struct{} // holds a value during a call, because two at once would get each other's answers

	window    int             // how many messages the broker may have sent
	changing  bool            // the broker has not answered the last change of the window
	changed   <-chan struct{} // closed when it has; nil before the first change
	n         int             // number of previous consumers
	consumer  *consumer       // nil while the window is 0
	lastEnded <-chan struct{} // of the last consumer; nil before the first
}

// consumer is one of a channel's consecutive consumers.
type consumer struct {
	tag       string
	cancelled atomic.Bool     // by this process
	before    <-chan struct{} // closed when all messages of the previous consumer were passed on; nil before the first
	ended     chan struct{}   // the same for this one
}

// begin passes on the messages of the first consumer, already running.
func (i *intake) begin(in <-chan amqp091.Delivery) {
	i.consumer = i.next()
	go i.passOn(i.consumer, in)
}

// next makes the channel's next consumer, which is not started yet.
func (i *intake) next() *consumer {
	c := &consumer{tag: link.ConsumerTagOf(i.n), before: i.lastEnded, ended: make(chan struct{})}
	i.lastEnded = c.ended
	return c
}

// passOn passes on a consumer's messages, after all of the previous consumer's. An ack of several deliveries covers
// every lower tag, so these must have come first.
func (i *intake) passOn(c *consumer, from <-chan amqp091.Delivery) {
	defer close(c.ended)
	if c.before != nil {
		<-c.before
	}
	s := i.s
	var room slab
	for d := range from {
		select {
		case s.in <- room.delivery(&d):
		case <-s.over:
			return
		}
	}
	if !c.cancelled.Load() && !s.ch.IsClosed() {
		s.fail(errCancelled)
		s.finish()
	}
}

// cancel ends a consumer. Its messages stay unsettled. An error means that the channel has ended.
func (i *intake) cancel(c *consumer) error {
	c.cancelled.Store(true)
	return i.s.ch.Cancel(c.tag, false)
}

// change changes the window by starting a new consumer, or none. The messages of the old one stay unsettled. The new
// consumer has another tag: with the same one each ack of an old message would bring a new message, and RabbitMQ 3.10
// would close the connection at the second change.
//
// A goroutine waits for the broker, because a queue without a majority does not answer. Changes that are made
// meanwhile follow as one.
func (i *intake) change(window int) {
	i.window = window
	if i.changing {
		return
	}
	i.changing = true
	old := i.consumer
	i.consumer = nil
	if window > 0 {
		i.n++
		i.consumer = i.next()
	}
	n, next, changed := i.n, i.consumer, make(chan struct{})
	i.changed = changed
	go func() {
		i.calls <- struct{}{}
		err := i.replace(old, next, n, window)
		<-i.calls
		close(changed)
		i.s.lane.Post(func() { i.replaced(window, err) })
	}()
}

// replace cancels the old consumer, if there is one, and starts the next one, the nth, if there is one. An error means
// that the channel has ended.
func (i *intake) replace(old, next *consumer, n, window int) (err error) {
	if old != nil {
		err = i.cancel(old)
	}
	if next == nil {
		return err
	}
	var in <-chan amqp091.Delivery
	if err == nil {
		in, err = link.StartConsumerWith(i.s.ch, i.s.queue, n, window, i.s.r.policyArgs())
	}
	if err != nil {
		close(next.ended)
		return err
	}
	go i.passOn(next, in)
	return nil
}

// replaced continues after the broker has answered the change to this window.
func (i *intake) replaced(window int, err error) {
	i.changing = false
	switch {
	case err != nil || i.s.stopped:
	case i.window != window:
		i.change(i.window)
	default:
		i.s.hold.windowChanged()
	}
}

// stop cancels the consumer, and returns a channel that is closed when all its messages were passed on. It returns nil
// if there is none.
func (i *intake) stop() <-chan struct{} {
	if i.consumer == nil && !i.changing {
		return nil
	}
	stopped := make(chan struct{})
	c, ended, changed := i.consumer, i.lastEnded, i.changed
	go func() {
		defer close(stopped)
		if changed != nil {
			<-changed // otherwise the consumer may start after its end
		}
		i.calls <- struct{}{}
		defer func() { <-i.calls }()
		if c != nil {
			_ = i.cancel(c) // after an error the channel has ended
		}
		<-ended
	}()
	return stopped
}

// The broker's prefetch bounds the number of messages, not their size. A source of retries may hold thousands that
// are not due. So it starts with a small window, and enlarges it while the messages so far leave room in
// Config.RetryBytes; larger messages shrink it. The first window assumes large messages, but has a minimum:
// the broker takes some milliseconds for each change, and messages are late meanwhile.
const (
	assumedBody    = 256 << 10 // bytes of a body
	minFirstWindow = 16
)

// firstWindow returns a source's first window.
func (cfg queueConfig) firstWindow(bytes int) int {
	if cfg.kind == layout.RetryQueue || cfg.kind == layout.DelayQueue {
		return min(cfg.prefetch, max(minFirstWindow, bytes/assumedBody))
	}
	return cfg.prefetch
}

// fitWindow returns the window for n unsettled messages of the given total size under the current window.
func fitWindow(window, maxWindow, n, bytes, limit int) int {
	switch {
	case n == 0:
		return window
	case bytes > limit: // to three quarters, so that the window does not oscillate
		return min(window, max(1, int(int64(n)*int64(limit)*3/4/int64(bytes))))
	case n >= window && 3*window*(bytes/n) <= limit: // n old messages stay, and up to 2*window new ones come
		return min(maxWindow, 2*window)
	default:
		return window
	}
}
