package amqp

import (
	"context"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/internal/driver"
)

// The broker bounds how many messages it sends, and not how large they are together: it knows no other prefetch. So a source of
// retries, which may keep thousands that are not due, begins with few and asks for more as long as the ones that it has seen
// leave room in Config.RetryBytes; where larger ones come, for fewer. It begins with as many messages as would fit if they were
// large, but not with less than a few: each time that it asks for more costs the broker some milliseconds, in which others come
// late.
const (
	assumedBody    = 256 << 10 // bytes of a body
	minFirstWindow = 16
)

// firstWindow is how many messages a source has in hand at first.
func (cfg queueConfig) firstWindow(bytes int) int {
	if cfg.kind == retryQueue || cfg.kind == delayQueue {
		return min(cfg.prefetch, max(minFirstWindow, bytes/assumedBody))
	}
	return cfg.prefetch
}

// fitWindow is the window that suits n messages in hand, with so many bytes in all, where the window was so large.
func fitWindow(window, maxWindow, n, bytes, limit int) int {
	switch {
	case n == 0:
		return window
	case bytes > limit: // to three quarters: a window that is right does not swing
		return min(window, max(1, int(int64(n)*int64(limit)*3/4/int64(bytes))))
	case n >= window && 3*window*(bytes/n) <= limit: // what is in hand stays beside the new
		return min(maxWindow, 2*window)
	default:
		return window
	}
}

// consumer is one of the consumers of a channel, one after another.
type consumer struct {
	tag       string
	cancelled atomic.Bool   // by us
	ended     chan struct{} // closed when all that it has brought was passed on
	stop      context.CancelFunc
}

// startPassing has what a new consumer brings passed on, after all that the one before has brought: an ack of several deliveries covers
// every lower tag, so what has one must have been read.
func (s *source) startPassing(from <-chan amqp091.Delivery) {
	before := s.lastEnded
	c := &consumer{tag: tag(s.consumers), ended: make(chan struct{})}
	s.consumer, s.lastEnded = c, c.ended
	go func() {
		defer close(c.ended)
		if before != nil {
			<-before
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
	}()
}

// cancel ends a consumer; what it has brought stays in hand. An error means that the channel is gone.
func (s *source) cancel(c *consumer) error {
	c.cancelled.Store(true)
	return s.ch.Cancel(c.tag, false)
}

// consume asks the broker for more messages, or for fewer, by another consumer, or for none. What the old one has brought stays
// in hand. The new one has another name: under the same one each ack of an old message would bring a new one, and RabbitMQ 3.10
// would end the connection at the second time.
func (s *source) consume(window int) {
	s.window = window
	if s.consumer != nil {
		if s.cancel(s.consumer) != nil {
			return
		}
		s.consumer = nil
	}
	if window == 0 {
		return
	}
	s.consumers++
	if in, err := readAs(s.ch, s.queue, s.consumers, window, s.r.policyArgs()); err == nil {
		s.startPassing(in)
	}
}

// Accept implements [driver.Source]. The broker's prefetch is the bound. So nothing is accepted only where nothing may begin:
// behind a closed gate, see look, or beside a suspect. There the prefetch stays in hand, because what is given back is counted,
// and the next suspect may follow at once.
func (s *source) Accept(n int) {
	if n == 0 && s.r.client.turn.Closed() {
		s.flush(true) // see Commit
	}
	switch {
	case s.stopped || s.kind == suspectQueue:
	case s.paused && n > 0:
		s.checkHeld()
	case !s.paused && s.kind != mainQueue:
		if w := fitWindow(s.window, s.prefetch, s.acks.len, s.acks.bytes, s.r.client.cfg.RetryBytes); w != s.window {
			s.consume(w)
		}
	}
}

// pauseAfter is how long a source keeps what may not begin, at most.
const pauseAfter = 10 * time.Second

// checkInterval is how often a source looks at what lies in its hand.
func (s *source) checkInterval() time.Duration {
	return min(time.Second, s.r.client.cfg.ConsumerTimeout/20)
}

func (s *source) scheduleCheck() {
	s.lane.Post(func() {
		s.checkHeld()
		s.looking.Reset(s.checkInterval())
	})
}

// checkHeld pauses where nothing may begin, and goes on where something may again. It gives back what has lain here unrun for half
// of the time after which the broker would close the channel: slow handlers keep their slots for as long.
func (s *source) checkHeld() {
	if s.stopped {
		return
	}
	now := time.Now()
	if s.ordered {
		s.checkHeldOrdered(now)
		return
	}
	shut, probes := s.r.sub.Gate.Closed(), s.r.sub.Held()
	switch {
	case !shut && !probes:
		s.halted = time.Time{}
		if s.paused {
			s.paused = false
			s.consume(s.firstWindow(s.r.client.cfg.RetryBytes))
		}
	case s.halted.IsZero():
		s.halted = now
	case !s.paused && now.Sub(s.halted) >= min(pauseAfter, s.r.client.cfg.ConsumerTimeout/4):
		s.paused = true
		s.consume(s.pausedWindow(shut))
		s.lane.ReturnUnrun(nil)
	case s.paused && s.window != s.pausedWindow(shut):
		s.consume(s.pausedWindow(shut))
	}
	if limit := s.r.client.cfg.ConsumerTimeout / 2; now.Sub(s.swept) >= limit/10 {
		s.swept = now
		s.lane.ReturnUnrun(func(m *driver.Message[*delivery]) bool { return now.Sub(m.Record.arrived) >= limit })
	}
}

// pausedWindow is how many messages a source takes that is paused: none, because the broker counts each time that one comes
// back, or one where that may begin as a probe, or where the queue would expire without a consumer.
func (s *source) pausedWindow(shut bool) int {
	if !shut || s.kind == mainQueue && s.r.layout.expires {
		return 1
	}
	return 0
}

// checkHeldOrdered is look where messages keep their places. RabbitMQ has one way to deliver a queue in order: to one consumer at a
// time, on one channel, whose end hands all of it back at once. So nothing of such a queue is ever handed back by itself, and no
// consumer of it is cancelled while it has something in hand: the channel ends, when no handler runs, and the next one goes on
// as it was.
func (s *source) checkHeldOrdered(now time.Time) {
	if !s.r.sub.Gate.Closed() {
		s.halted = time.Time{}
	} else if s.halted.IsZero() {
		s.halted = now
	}
	limit := s.r.client.cfg.ConsumerTimeout / 2
	switch {
	case s.tired:
	case !s.halted.IsZero() && now.Sub(s.halted) >= min(pauseAfter, limit/2) && !s.r.layout.expires:
		s.endWhenIdle(errPaused)
	default:
		for d := range s.acks.untold {
			if now.Sub(d.arrived) < limit {
				break // those behind it came later
			}
			if d.what == open && !d.running {
				s.endWhenIdle(errTired)
				break
			}
		}
	}
}

// endWhenIdle has the source end when no handler runs.
func (s *source) endWhenIdle(why error) {
	s.tired = true
	s.fail(why)
	if s.running == 0 {
		s.finish()
	}
}
