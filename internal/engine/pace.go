package engine

import (
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/redeliver/redeliver"
)

// pace is a policy's Rate. It is a part of the slots, whose lock guards it: a lane that may not begin a message yet stands in
// their queue like one that waits for a slot, and holds none meanwhile.
type pace struct {
	limit *xrate.Limiter
	spare int // attempts that were counted and did not begin
}

// newPace makes the pace of a policy; nil where it has none.
func newPace(r redeliver.Rate) *pace {
	if !r.On() {
		return nil
	}
	return &pace{limit: xrate.NewLimiter(xrate.Limit(r.PerSecond), r.Burst)}
}

// wait is how long it takes until an attempt may begin; 0 where one may begin now.
func (p *pace) wait(now time.Time) time.Duration {
	if p.spare > 0 {
		return 0
	}
	missing := 1 - p.limit.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(p.limit.Limit()) * float64(time.Second)) // as the limiter rounds it
}

// take counts an attempt that begins. One that does not ask before makes the next ones wait for longer.
func (p *pace) take(now time.Time) {
	if p.spare > 0 {
		p.spare--
		return
	}
	p.limit.ReserveN(now, 1)
}

// cancel gives back the slot of a message that does not begin after all.
func (s *slots) cancel(class int, probe bool) {
	if s.pace != nil {
		s.mu.Lock()
		s.pace.spare++
		s.mu.Unlock()
	}
	s.give(class, probe, silent)
}

// began counts an attempt that begins without a slot of its own: one that is made at once, or alone.
func (s *slots) began() {
	if s.pace != nil {
		s.mu.Lock()
		s.pace.take(time.Now())
		s.mu.Unlock()
	}
}
