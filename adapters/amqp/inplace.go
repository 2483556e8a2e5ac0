package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// noteOrdered is the turn of a suspect that keeps its place: it cannot be moved to a queue of suspects, and what the broker counted
// of it says nothing, because that rises for all that is behind a killer, too. So it stays, in a turn of its own like any other,
// and is charged in a queue beside before it runs, see updateCrashCount. The charge is taken back when its process has survived it.
type inPlaceTurn struct {
	s *source
	d *delivery

	mu            sync.Mutex
	state         turnState
	crashesBefore int // crashes
}

type turnState uint8

const (
	turnIdle    turnState = iota
	turnSeeking           // it waits for its turn
	turnTaken             // it has its turn, and the lane has not heard of it
	turnHeld              // it has its turn
	turnEnding            // the charge is taken back
)

// beginOrSeek reports whether the message has its turn. If not, it seeks one, and the lane hears when it has it.
func (p *inPlaceTurn) beginOrSeek() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == turnIdle {
		p.state = turnSeeking
		p.s.tasks.start(p.seek)
	}
	return p.state == turnHeld
}

// confirmTurn reports whether the message still has the turn that it has taken. Now it may begin.
func (p *inPlaceTurn) confirmTurn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == turnTaken {
		p.state = turnHeld
	}
	return p.state == turnHeld
}

func (p *inPlaceTurn) setState(state turnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

// seek takes a turn, and notes the charge.
func (p *inPlaceTurn) seek() {
	s, turn, ctx := p.s, p.s.r.client.turn, p.s.calling
	for c := (crashCharge{}); turn.Take(ctx, &s.r.sub.Gate); {
		try, cancel := context.WithTimeout(ctx, s.r.client.cfg.SendTimeout)
		err := s.r.updateCrashCount(try, p.d.id(), c.add)
		cancel()
		if err == nil {
			p.mu.Lock()
			p.state, p.crashesBefore = turnTaken, c.crashesBefore
			p.mu.Unlock()
			if !s.lane.Post(p.turnCame) {
				p.end(false)
			}
			return
		}
		turn.Give()
		s.r.sub.TellChange(redeliver.ChangeSuspectUnmarked, "it waits in its place for its turn", err)
		timer := time.NewTimer(suspectPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	p.setState(turnIdle)
}

// crashCharge is one crash more for a message. A try to note it may fail and have noted it: the next one must not add another.
type crashCharge struct {
	crashesBefore int // the crashes that the first try found
	known         bool
}

// add is the crashes of a message that had n.
func (c *crashCharge) add(n int) int {
	if !c.known {
		c.crashesBefore, c.known = n, true
	}
	return max(n, c.crashesBefore+1)
}

// turnCame is called by the lane's goroutine when the message has its turn. It may have ended meanwhile, or nothing may begin: then
// the others must not wait for it.
func (p *inPlaceTurn) turnCame() {
	s, m := p.s, p.d.m
	if s.stopped || s.tired || p.d.what != open || s.r.sub.Gate.Closed() {
		p.end(false)
		return
	}
	if !p.confirmTurn() {
		return
	}
	m.Alone = true
	if p.crashesBefore >= s.r.layout.policy.MaxCrashes {
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Times: p.crashesBefore}
	}
}

// end ends a turn, if there is one: the process has not died of the message. settled says that the message is.
func (p *inPlaceTurn) end(settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != turnTaken && p.state != turnHeld {
		return
	}
	p.state = turnEnding
	p.s.tasks.start(func() {
		p.removeCharge(settled)
		p.s.r.client.turn.Give()
		p.setState(turnIdle)
		p.s.lane.Post(func() {}) // it may want another turn
	})
}

// withoutCharge is the crashes of a message that had n with the charge. Another process may have it by now, and have charged it. A
// try that failed may have taken the charge back.
func (p *inPlaceTurn) withoutCharge(n int) int { return min(n, max(p.crashesBefore, n-1)) }

// removeCharge takes the charge back, until that has worked or the client is closed: nothing else begins before.
func (p *inPlaceTurn) removeCharge(settled bool) {
	s := p.s
	change := p.withoutCharge
	if settled {
		// If its ack is lost it comes back, and nothing else may have run.
		_, _ = s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		change = func(int) int { return 0 }
	}
	pause := newPause()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), s.r.client.cfg.SendTimeout)
		err := s.r.updateCrashCount(ctx, p.d.id(), change)
		cancel()
		if err == nil || s.r.client.consuming.isClosed() {
			return
		}
		time.Sleep(pause.NextBackOff()) //nolint:forbidigo // nobody tells when the broker is there again
	}
}

// tasks are goroutines that may be waited for. Safe for concurrent use.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when there are none; nil where nobody waits
}

func (t *tasks) start(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns when there are none, or ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
