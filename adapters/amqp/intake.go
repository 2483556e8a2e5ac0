package amqp

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// intake is the consumer of a source's channel. Each change of the window ends it and starts another one. The lane's
// goroutine calls the methods; run has a goroutine of its own, because a queue without a majority does not answer.
type intake struct {
	s     *source
	calls chan struct{} // holds a value during a call, because two at once would get each other's answers

	active          bool // a message of an ordered queue has come; run's own
	window          int  // how many messages the broker may have sent
	asked, answered int  // how many changes there were, and the number of the last one that the broker has answered
	changes         chan windowChange
	stopping        chan struct{} // closed when no more messages may come
	ended           chan struct{} // closed when all messages were passed on
}

// windowChange is a change of an intake's window.
type windowChange struct{ number, window int }

func newIntake(s *source, window int) intake {
	return intake{s: s, calls: make(chan struct{}, 1), window: window, changes: make(chan windowChange, 1), stopping: make(chan struct{}), ended: make(chan struct{})}
}

// call runs a call on the channel alone.
func (i *intake) call(do func()) {
	i.calls <- struct{}{}
	defer func() { <-i.calls }()
	do()
}

// run passes on the messages of the first consumer, which is already running, and of those that follow it. All messages
// of one consumer come before those of the next: an ack of several deliveries covers every lower tag.
func (i *intake) run(in <-chan amqp091.Delivery) {
	defer close(i.ended)
	s, n := i.s, 0 // the nth consumer
	var room slab
	for {
		select {
		case d, open := <-in:
			if !open { // the broker has cancelled the consumer, or the channel has ended
				if !s.ch.IsClosed() {
					s.lane.Post(func() {
						s.fail(s.cancelled())
						s.finish()
					})
				}
				return
			}
			i.pass(room.delivery(&d))
		case c := <-i.changes:
			err := i.cancel(in, n, &room)
			if in = nil; err == nil && c.window > 0 {
				n++
				in, err = i.start(n, c.window)
			}
			s.lane.Post(func() { i.changed(c.number, err) })
		case <-i.stopping:
			_ = i.cancel(in, n, &room) // after an error the channel has ended
			return
		case <-s.laneEnded:
			return
		}
	}
}

// pass passes on a message, unless the lane has ended. The first message of an ordered queue says that this consumer is the
// active one: then it reads the notes of the one before.
func (i *intake) pass(d *delivery) {
	if i.s.ordered && !i.active {
		i.active = true
		i.s.openNotes()
	}
	select {
	case i.s.in <- d:
	case <-i.s.laneEnded:
	}
}

// cancel ends the nth consumer, if there is one, and passes on the rest of its messages, which stay unsettled. An error
// means that the channel has ended.
func (i *intake) cancel(in <-chan amqp091.Delivery, n int, room *slab) (err error) {
	if in == nil {
		return nil
	}
	i.call(func() { err = link.StopConsumer(i.s.ch, link.ConsumerTagOf(n)) })
	for d := range in {
		i.pass(room.delivery(&d))
	}
	return err
}

// start starts the nth consumer. It has a tag of its own: with the same one each ack of an old message would bring a new
// message, and RabbitMQ 3.10 would close the connection at the second change.
func (i *intake) start(n, window int) (in <-chan amqp091.Delivery, err error) {
	i.call(func() {
		in, err = link.StartConsumer(i.s.ch, i.s.queue, link.ConsumerTagOf(n), window)
	})
	return in, err
}

// change changes the window. Of several changes that are made before the broker has answered, the last one counts.
func (i *intake) change(window int) {
	i.window, i.asked = window, i.asked+1
	i.dropChange()
	i.changes <- windowChange{i.asked, window}
}

// dropChange drops a change that has not begun.
func (i *intake) dropChange() {
	select {
	case <-i.changes:
	default:
	}
}

// isSettled reports whether the broker has answered all changes.
func (i *intake) isSettled() bool { return i.answered == i.asked }

// changed continues after the broker has answered a change. An error means that the channel has ended.
func (i *intake) changed(number int, err error) {
	if err != nil || i.s.stopped {
		return
	}
	if i.answered = number; i.isSettled() {
		i.s.hold.check()
	}
}

// stop cancels the consumer. It returns a channel that is closed when all its messages were passed on.
func (i *intake) stop() <-chan struct{} {
	i.dropChange() // it would start another consumer
	close(i.stopping)
	return i.ended
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
	if cfg.isCautious() {
		return 1
	}
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
