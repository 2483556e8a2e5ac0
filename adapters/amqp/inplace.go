package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// inPlace is the turn of a suspect that keeps its place: it cannot be moved to a queue of suspects, and what the broker counted
// of it says nothing, because that rises for all that is behind a killer, too. So it stays, in a turn of its own like any other,
// and is charged in a queue beside before it runs, see noteCrashes. The charge is taken back when its process has survived it.
type inPlace struct {
	s *source
	d *delivery

	mu     sync.Mutex
	state  placeState
	before int // crashes
}

type placeState uint8

const (
	placeIdle    placeState = iota
	placeSeeking            // it waits for its turn
	placeTaken              // it has its turn, and the lane has not heard of it
	placeHas                // it has its turn
	placeLeaving            // the charge is taken back
)

// begins reports whether the message has its turn. If not, it seeks one, and the lane hears when it has it.
func (p *inPlace) begins() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == placeIdle {
		p.state = placeSeeking
		p.s.tasks.do(p.seek)
	}
	return p.state == placeHas
}

// has reports whether the message still has the turn that it has taken. Now it may begin.
func (p *inPlace) has() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == placeTaken {
		p.state = placeHas
	}
	return p.state == placeHas
}

func (p *inPlace) set(state placeState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

// seek takes a turn, and notes the charge.
func (p *inPlace) seek() {
	s, turn, ctx := p.s, p.s.r.client.turn, p.s.calling
	for c := (charge{}); turn.Take(ctx, &s.r.sub.Gate); {
		try, cancel := context.WithTimeout(ctx, s.r.client.cfg.SendTimeout)
		err := s.r.noteCrashes(try, p.d.id(), c.add)
		cancel()
		if err == nil {
			p.mu.Lock()
			p.state, p.before = placeTaken, c.before
			p.mu.Unlock()
			if !s.lane.Post(p.come) {
				p.end(false)
			}
			return
		}
		turn.Give()
		s.r.sub.EmitChange(redeliver.ChangeSuspectUnmarked, "it waits in its place for its turn", err)
		timer := time.NewTimer(inquiry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	p.set(placeIdle)
}

// charge is one crash more for a message. A try to note it may fail and have noted it: the next one must not add another.
type charge struct {
	before int // the crashes that the first try found
	known  bool
}

// add is the crashes of a message that had n.
func (c *charge) add(n int) int {
	if !c.known {
		c.before, c.known = n, true
	}
	return max(n, c.before+1)
}

// come is called by the lane's goroutine when the message has its turn. It may have ended meanwhile, or nothing may begin: then
// the others must not wait for it.
func (p *inPlace) come() {
	s, m := p.s, p.d.m
	if s.stopped || s.tired || p.d.what != open || s.r.sub.Gate.Closed() {
		p.end(false)
		return
	}
	if !p.has() {
		return
	}
	m.Alone = true
	if p.before >= s.r.layout.policy.MaxCrashes {
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Times: p.before}
	}
}

// end ends a turn, if there is one: the process has not died of the message. settled says that the message is.
func (p *inPlace) end(settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != placeTaken && p.state != placeHas {
		return
	}
	p.state = placeLeaving
	p.s.tasks.do(func() {
		p.acquit(settled)
		p.s.r.client.turn.Give()
		p.set(placeIdle)
		p.s.lane.Post(func() {}) // it may want another turn
	})
}

// acquitted is the crashes of a message that had n with the charge. Another process may have it by now, and have charged it. A
// try that failed may have taken the charge back.
func (p *inPlace) acquitted(n int) int { return min(n, max(p.before, n-1)) }

// acquit takes the charge back, until that has worked or the client is closed: nothing else begins before.
func (p *inPlace) acquit(settled bool) {
	s := p.s
	less := p.acquitted
	if settled {
		// If its ack is lost it comes back, and nothing else may have run.
		_, _ = s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		less = func(int) int { return 0 }
	}
	pause := newPause()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), s.r.client.cfg.SendTimeout)
		err := s.r.noteCrashes(ctx, p.d.id(), less)
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

func (t *tasks) do(f func()) {
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
