package amqp

import (
	"context"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

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

// consumer is one of a channel's consecutive consumers.
type consumer struct {
	tag       string
	cancelled atomic.Bool     // by this process
	before    <-chan struct{} // closed when all messages of the previous consumer were passed on; nil before the first
	ended     chan struct{}   // the same for this one
	stop      context.CancelFunc
}

// nextConsumer makes the channel's next consumer, which is not started yet.
func (s *source) nextConsumer() *consumer {
	c := &consumer{tag: link.ConsumerTagOf(s.consumers), before: s.lastEnded, ended: make(chan struct{})}
	s.lastEnded = c.ended
	return c
}

// passOn passes on the messages of a consumer after all of the previous one. An ack of several deliveries covers every
// lower tag, so those must have been read first.
func (s *source) passOn(c *consumer, from <-chan amqp091.Delivery) {
	defer close(c.ended)
	if c.before != nil {
		<-c.before
	}
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
func (s *source) cancel(c *consumer) error {
	c.cancelled.Store(true)
	return s.ch.Cancel(c.tag, false)
}

// changeWindow changes the window by starting a new consumer, or none. The messages of the old one stay unsettled. The new
// consumer has another tag: with the same one each ack of an old message would bring a new message, and RabbitMQ 3.10
// would close the connection at the second change.
//
// A goroutine waits for the broker, because a queue without a majority does not answer. Changes that are made
// meanwhile follow as one.
func (s *source) changeWindow(window int) {
	s.window = window
	if s.changing {
		return
	}
	s.changing = true
	old := s.consumer
	s.consumer = nil
	if window > 0 {
		s.consumers++
		s.consumer = s.nextConsumer()
	}
	n, next, changed := s.consumers, s.consumer, make(chan struct{})
	s.changed = changed
	go func() {
		s.calls <- struct{}{}
		err := s.replaceConsumer(old, next, n, window)
		<-s.calls
		close(changed)
		s.lane.Post(func() { s.consumerReplaced(window, err) })
	}()
}

// replaceConsumer cancels the old consumer, if there is one, and starts the next one, the nth, if there is one. An
// error means that the channel has ended.
func (s *source) replaceConsumer(old, next *consumer, n, window int) (err error) {
	if old != nil {
		err = s.cancel(old)
	}
	if next == nil {
		return err
	}
	var in <-chan amqp091.Delivery
	if err == nil {
		in, err = link.StartConsumerWith(s.ch, s.queue, n, window, s.r.policyArgs())
	}
	if err != nil {
		close(next.ended)
		return err
	}
	go s.passOn(next, in)
	return nil
}

// consumerReplaced continues after the broker has answered the change to this window.
func (s *source) consumerReplaced(window int, err error) {
	s.changing = false
	switch {
	case err != nil || s.stopped:
	case s.window != window:
		s.changeWindow(s.window)
	case s.returnsUnrun && s.paused: // not before: the old consumer would get them again
		s.returnsUnrun = false
		s.lane.ReturnUnrun(nil)
	}
}

// Accept implements [driver.Source]. The broker's prefetch is the bound, so n is 0 only if nothing may begin: behind
// a closed gate, see checkHeld, or beside a suspect. Beside a suspect the prefetched messages stay: the broker counts
// returns, and the next suspect may follow at once.
func (s *source) Accept(n int) {
	if n == 0 && s.r.client.turn.Closed() {
		s.flushAcks(true) // see Commit
	}
	switch {
	case s.stopped || s.kind == layout.SuspectQueue:
	case s.paused && n > 0:
		s.checkHeld()
	case !s.paused && s.kind != layout.MainQueue:
		if w := fitWindow(s.window, s.prefetch, s.acks.len, s.acks.bytes, s.r.client.cfg.RetryBytes); w != s.window {
			s.changeWindow(w)
		}
	}
}

// pauseAfter bounds how long a source keeps messages that may not begin.
const pauseAfter = 10 * time.Second

// returnAfter returns how long a source keeps messages that may not begin. In a pause of the group no process
// returns messages until all have cancelled their consumers: otherwise each would get and return them, and the broker
// counts that.
func (s *source) returnAfter() time.Duration {
	keep := pauseAfter
	if s.r.isPaused(s.kind) {
		keep = engine.PauseLook + 5*time.Second
	}
	return min(keep, s.r.client.cfg.ConsumerTimeout/4)
}

// checkInterval returns how often a source checks its unsettled messages.
func (s *source) checkInterval() time.Duration {
	return min(time.Second, s.r.client.cfg.ConsumerTimeout/20)
}

func (s *source) postCheck() {
	s.lane.Post(func() {
		s.checkHeld()
		s.checkTimer.Reset(s.checkInterval())
	})
}

// checkHeld pauses the source while nothing may begin, and resumes it afterwards. It returns messages that have waited
// for half of ConsumerTimeout; slow handlers may occupy slots that long.
func (s *source) checkHeld() {
	if s.stopped {
		return
	}
	now := time.Now()
	if s.ordered {
		s.checkHeldOrdered(now)
		return
	}
	shut, probes := s.r.isShut(s.kind), s.r.sub.Held()
	switch {
	case !shut && !probes:
		s.haltedSince = time.Time{}
		if s.paused {
			s.paused, s.keeps, s.returnsUnrun = false, false, false
			s.changeWindow(s.firstWindow(s.r.client.cfg.RetryBytes))
		}
	case s.haltedSince.IsZero():
		s.haltedSince = now
		if s.r.isPaused(s.kind) {
			s.paused, s.keeps = true, true
			s.changeWindow(s.pausedWindow(shut))
		}
	case !s.paused && now.Sub(s.haltedSince) >= s.returnAfter():
		s.paused, s.returnsUnrun = true, true
		s.changeWindow(s.pausedWindow(shut))
	case s.keeps && now.Sub(s.haltedSince) >= s.returnAfter():
		s.keeps = false
		if s.returnsUnrun = s.changing; !s.changing {
			s.lane.ReturnUnrun(nil)
		}
	case s.paused && s.window != s.pausedWindow(shut):
		s.changeWindow(s.pausedWindow(shut))
	}
	if limit := s.r.client.cfg.ConsumerTimeout / 2; now.Sub(s.lastSweep) >= limit/10 {
		s.lastSweep = now
		s.lane.ReturnUnrun(func(m *driver.Message[*delivery]) bool { return now.Sub(m.Record.arrived) >= limit })
	}
}

// pausedWindow returns the window of a paused source: 0, because the broker counts each return, or 1 if one message
// may begin as a probe or the queue would expire without a consumer.
func (s *source) pausedWindow(shut bool) int {
	if !shut || s.kind == layout.MainQueue && s.r.layout.Expires {
		return 1
	}
	return 0
}

// checkHeldOrdered is checkHeld for ordered queues, see order.go. It ends the channel when no handler runs, and the
// next source resumes the state.
func (s *source) checkHeldOrdered(now time.Time) {
	if !s.r.isShut(s.kind) {
		s.haltedSince = time.Time{}
	} else if s.haltedSince.IsZero() {
		s.haltedSince = now
	}
	limit := s.r.client.cfg.ConsumerTimeout / 2
	switch {
	case s.ending:
	case !s.haltedSince.IsZero() && !s.r.layout.Expires && (now.Sub(s.haltedSince) >= s.returnAfter() || s.r.isPaused(s.kind) && s.acks.open() == 0):
		s.endWhenIdle(errPaused) // in a pause, channels without messages end first, so that they do not get those of others
	default:
		for d := range s.acks.unsent {
			if now.Sub(d.arrived) < limit {
				break // later messages are newer
			}
			if d.ackState == ackOpen && !d.running {
				s.endWhenIdle(errHeldTooLong)
				break
			}
		}
	}
}

// endWhenIdle ends the source when no handler runs.
func (s *source) endWhenIdle(why error) {
	s.ending = true
	s.fail(why)
	if s.running == 0 {
		s.finish()
	}
}
