package engine

import (
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/redeliver/redeliver"
)

// rateLimiter is a policy's Rate. It is a part of the slots, whose lock guards it: a lane that may not begin a message yet stands in
// their queue like one that waits for a slot, and holds none meanwhile.
type rateLimiter struct {
	limiter *xrate.Limiter
	unused  int // attempts that were counted and did not begin
}

// newRateLimiter makes the pace of a policy; nil where it has none.
func newRateLimiter(r redeliver.Rate) *rateLimiter {
	if !r.On() {
		return nil
	}
	return &rateLimiter{limiter: xrate.NewLimiter(xrate.Limit(r.PerSecond), r.Burst)}
}

// wait is how long it takes until an attempt may begin; 0 where one may begin now.
func (p *rateLimiter) wait(now time.Time) time.Duration {
	if p.unused > 0 {
		return 0
	}
	missing := 1 - p.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(p.limiter.Limit()) * float64(time.Second)) // as the limiter rounds it
}

// take counts an attempt that begins. One that does not ask before makes the next ones wait for longer.
func (p *rateLimiter) take(now time.Time) {
	if p.unused > 0 {
		p.unused--
		return
	}
	p.limiter.ReserveN(now, 1)
}

// cancel gives back the slot of a message that does not begin after all.
func (s *slots) cancel(class int, probe bool) {
	if s.rate != nil {
		s.mu.Lock()
		s.rate.unused++
		s.mu.Unlock()
	}
	s.give(class, probe, signalNone)
}

// began counts an attempt that begins without a slot of its own: one that is made at once, or alone.
func (s *slots) began() {
	if s.rate != nil {
		s.mu.Lock()
		s.rate.take(time.Now())
		s.mu.Unlock()
	}
}
