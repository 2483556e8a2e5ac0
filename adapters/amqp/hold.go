package amqp

import (
	"time"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// pauseAfter bounds how long a source keeps messages that may not begin.
const pauseAfter = 10 * time.Second

// maxSilence is how long a source waits for a message of a broker that may have forgotten the consumer. The broker says
// nothing, counts the messages as unacked, and gives them back when the channel ends. So the source then ends.
const maxSilence = time.Minute

// hold pauses a source while nothing may begin: after a while the source stops consuming and returns its messages once.
type hold struct {
	s            *source
	since        time.Time // since when nothing may begin, or zero
	paused       bool
	returned     bool      // the messages that had not begun were returned in this pause
	lastAgeCheck time.Time // time of the last check for old messages
	timer        *time.Timer
}

// returnAfter returns how long a source keeps messages that may not begin. In a pause of the group no process
// returns messages until all have cancelled their consumers: otherwise each would get and return them, and the broker
// counts that.
func (h *hold) returnAfter() time.Duration {
	s := h.s
	keep := pauseAfter
	if s.r.isPaused(s.kind) {
		keep = engine.PausePollInterval + 5*time.Second
	}
	return min(keep, s.r.client.cfg.ConsumerTimeout/4)
}

// interval returns how often a source checks its unsettled messages.
func (h *hold) interval() time.Duration {
	return min(time.Second, h.s.r.client.cfg.ConsumerTimeout/20)
}

func (h *hold) postCheck() {
	h.s.lane.Post(func() {
		h.check()
		h.timer.Reset(h.interval())
	})
}

// check pauses the source while nothing may begin, and resumes it afterwards. It returns messages that have waited
// for half of ConsumerTimeout; slow handlers may occupy slots that long.
func (h *hold) check() {
	s := h.s
	if s.stopped {
		return
	}
	now := time.Now()
	if s.mayBeForgotten && s.acks.unacked == 0 && now.Sub(s.lastArrival) >= maxSilence && !s.r.isShut(s.kind) && !h.paused {
		s.acked = false // long ago: no ack is on its way
		h.endWhenIdle(errSilent)
		return
	}
	if s.ordered {
		h.checkOrdered(now)
		return
	}
	if shut := s.r.isShut(s.kind); !shut && !s.r.sub.OnlyProbes() {
		if h.paused {
			s.intake.change(s.firstWindow(s.r.client.cfg.RetryBytes))
		}
		h.since, h.paused, h.returned = time.Time{}, false, false
	} else {
		h.pause(now, shut)
	}
	if limit := s.r.client.cfg.ConsumerTimeout / 2; now.Sub(h.lastAgeCheck) >= limit/10 {
		h.lastAgeCheck = now
		s.lane.ReturnUnrun(func(m *driver.Message[*delivery]) bool { return now.Sub(m.Record.arrived) >= limit })
	}
}

// pause stops the consumer at once in a pause of the group, otherwise after a while. It returns messages when the
// broker has answered that: the old consumer would get them again.
func (h *hold) pause(now time.Time, shut bool) {
	s := h.s
	if h.since.IsZero() {
		h.since = now
	}
	over := now.Sub(h.since) >= h.returnAfter()
	h.paused = h.paused || over || s.r.isPaused(s.kind)
	if w := h.pausedWindow(shut); h.paused && s.intake.window != w {
		s.intake.change(w)
	}
	if over && !h.returned && s.intake.isSettled() {
		h.returned = true
		s.lane.ReturnUnrun(nil)
	}
}

// pausedWindow returns the window of a paused source: 0, because the broker counts each return, or 1 if one message
// may begin as a probe or the queue would expire without a consumer.
func (h *hold) pausedWindow(shut bool) int {
	s := h.s
	if !shut || s.kind == layout.MainQueue && s.r.expires.Load() {
		return 1
	}
	return 0
}

// checkOrdered is check for ordered queues, see order.go. It ends the channel when no handler runs;
// rememberState keeps the states.
func (h *hold) checkOrdered(now time.Time) {
	s := h.s
	if !s.r.isShut(s.kind) {
		h.since = time.Time{}
	} else if h.since.IsZero() {
		h.since = now
	}
	limit := s.r.client.cfg.ConsumerTimeout / 2
	switch {
	case s.ending:
	case !h.since.IsZero() && !s.r.expires.Load() && (now.Sub(h.since) >= h.returnAfter() || s.r.isPaused(s.kind) && s.acks.open() == 0):
		h.endWhenIdle(errPaused) // in a pause, channels without messages end first, so that they do not get those of others
	default:
		for d := range s.acks.unsent {
			if now.Sub(d.arrived) < limit {
				break // later messages are newer
			}
			if d.ackState == ackOpen && !d.running {
				h.endWhenIdle(errHeldTooLong)
				break
			}
		}
	}
}

// endWhenIdle ends the source when no handler runs.
func (h *hold) endWhenIdle(why error) {
	s := h.s
	s.ending = true
	s.fail(why)
	if s.running == 0 {
		s.finish()
	}
}
