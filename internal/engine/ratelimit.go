package engine

import (
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/redeliver/redeliver"
)

// rateLimiter applies a policy's Rate. It is a part of slots, whose lock guards it. A lane that may not begin a message
// yet waits in the queue for slots, without a slot.
type rateLimiter struct {
	limiter *xrate.Limiter
	unused  int // attempts that were counted but did not begin; the next ones are not counted instead
}

// newRateLimiter returns the limiter of a policy, or nil if it has no Rate.
func newRateLimiter(r redeliver.Rate) *rateLimiter {
	if r == (redeliver.Rate{}) {
		return nil
	}
	return &rateLimiter{limiter: xrate.NewLimiter(xrate.Limit(r.PerSecond), r.Burst)}
}

// wait returns the time until an attempt may begin; 0 means now.
func (r *rateLimiter) wait(now time.Time) time.Duration {
	if r.unused > 0 {
		return 0
	}
	missing := 1 - r.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(r.limiter.Limit()) * float64(time.Second)) // as the limiter rounds it
}

// take counts an attempt that begins. An attempt without a preceding wait makes the next ones wait for longer.
func (r *rateLimiter) take(now time.Time) {
	if r.unused > 0 {
		r.unused--
		return
	}
	r.limiter.ReserveN(now, 1)
}

// cancel undoes take for a message that could not begin, in the slots and in the rate.
func (s *slots) cancel(class int, probe bool) {
	s.cancelRate()
	s.release(class, probe, signalNone, 0)
}

// cancelRate undoes take for a message that no handler sees.
func (s *slots) cancelRate() {
	if s.rate != nil {
		s.step(func(time.Duration) { s.rate.unused++ })
	}
}

// beginWithoutSlot counts an attempt that begins without taking a slot: an immediate retry, or one that runs alone.
func (s *slots) beginWithoutSlot() {
	if s.rate != nil {
		s.mu.Lock()
		s.rate.take(time.Now())
		s.mu.Unlock()
	}
}
