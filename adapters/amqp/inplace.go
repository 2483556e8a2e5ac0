package amqp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/crashes"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/wait"
)

// inPlaceTurn is the turn of a suspect in an ordered queue, which keeps its place there. The broker's delivery count
// is no evidence, because it also rises for the messages behind one that kills its process. So the suspect is charged
// with a crash before it runs, see crashes.Counts, and the charge is removed when its process has survived.
type inPlaceTurn struct {
	s       *source
	d       *delivery
	state   atomic.Int32
	charge  crashes.Charge // set before the turn is taken
	settled atomic.Bool    // the message is settled
}

// The states of a turn.
const (
	turnIdle      int32 = iota
	turnRequested       // waits for its turn
	turnTaken           // has its turn, but the lane does not know yet
	turnHeld            // has its turn
	turnEnding          // the charge is being removed
)

// beginOrRequestTurn reports whether the message has its turn. If not, it requests one, and notifies the lane when the message
// has it.
func (p *inPlaceTurn) beginOrRequestTurn() bool {
	// While nothing may begin, onTurn would give each turn back. The lane asks again, see hold.check.
	if !p.s.r.isShut(p.s.kind) && p.state.CompareAndSwap(turnIdle, turnRequested) {
		p.s.tasks.start(p.requestTurn)
	}
	return p.state.Load() == turnHeld
}

// requestTurn takes a turn and writes the charge. While the charge cannot be written, other messages may begin for at least half
// of the time.
func (p *inPlaceTurn) requestTurn() {
	s, turn, ctx := p.s, p.s.r.client.turn, p.s.suspectCtx
	alarm, pause := &s.r.client.publishing.Blocked, newReconnectBackoff()
	p.charge = crashes.Charge{}
	for reported := false; ; {
		select {
		case <-alarm.Opened():
		case <-ctx.Done():
		}
		if !turn.Take(ctx, &s.r.sub.Gate) {
			break
		}
		if alarm.Closed() {
			turn.Give()
			continue
		}
		began := time.Now()
		// Not ctx: a write that it cuts off may have succeeded, and nothing would remove the charge.
		try, cancel := context.WithTimeout(context.Background(), s.r.client.cfg.SendTimeout)
		err := s.r.crashes.Update(try, p.d.id(), p.charge.Add)
		cancel()
		s.r.recordResult(link.MethodGet, s.r.layout.Place(), err)
		if err == nil {
			if p.state.Store(turnTaken); !s.lane.Post(p.onTurn) {
				p.end(false)
			}
			return
		}
		turn.Give()
		if !reported {
			s.r.sub.EmitChange(redeliver.ChangeSuspectUnmarked, "it waits in its place for its turn", err)
		}
		reported = true
		_ = wait.For(ctx, max(pause.NextBackOff(), time.Since(began))) // the loop notices the end of ctx
	}
	if p.charge.WasTried() { // a try that failed may have written it
		p.removeCharge(false)
	}
	p.state.Store(turnIdle)
}

// onTurn runs on the lane's goroutine when the message has its turn. If the message has ended or expired meanwhile, or
// nothing may begin, it ends the turn so that others need not wait.
func (p *inPlaceTurn) onTurn() {
	s, m := p.s, p.d.m
	if s.stopped || s.ending || p.d.ackState != ackOpen || m.Step != driver.StepHandle || s.r.isShut(s.kind) {
		p.end(false)
		return
	}
	if !p.state.CompareAndSwap(turnTaken, turnHeld) {
		return
	}
	m.Alone = true
	if p.charge.Before >= s.r.layout.Policy.MaxCrashes {
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.CrashedError{Crashes: p.charge.Before}
	}
}

// end ends a turn, if there is one, because the process has survived the message. settled reports whether the message
// is settled.
func (p *inPlaceTurn) end(settled bool) {
	if settled {
		p.settled.Store(true)
	}
	held := p.state.CompareAndSwap(turnTaken, turnEnding) || p.state.CompareAndSwap(turnHeld, turnEnding)
	// If the turn ended before the message was settled, earlier crashes are still counted.
	if !held && (!settled || !p.state.CompareAndSwap(turnIdle, turnEnding)) {
		return
	}
	if !held && p.charge.Before == 0 {
		p.state.Store(turnIdle)
		return
	}
	p.s.tasks.start(func() {
		p.removeCharge(settled)
		if settled {
			p.charge = crashes.Charge{}
		}
		if held {
			p.s.r.client.turn.Give()
		}
		p.state.Store(turnIdle)
		if !settled && p.settled.Load() { // settled meanwhile
			p.end(true)
		}
		p.s.lane.Post(func() {}) // it may want another turn
	})
}

// removeCharge removes the charge. It repeats that until it succeeds or the client is closed, and nothing else begins
// before.
func (p *inPlaceTurn) removeCharge(settled bool) {
	s := p.s
	change := p.charge.Remove
	if settled {
		// When the broker answers this, it has the message's ack.
		_, _ = s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		change = func(int) int { return 0 }
	}
	pause := newReconnectBackoff()
	for first := true; ; first = false {
		ctx, cancel := context.WithTimeout(context.Background(), s.r.client.cfg.SendTimeout)
		err := s.r.crashes.Update(ctx, p.d.id(), change)
		cancel()
		s.r.recordResult(link.MethodGet, s.r.layout.Place(), err)
		if err == nil || s.r.client.consuming.IsClosed() {
			return
		}
		if first {
			s.r.sub.EmitChange(redeliver.ChangeSuspectUnmarked, "nothing else begins until its marker is removed", err)
		}
		time.Sleep(pause.NextBackOff()) //nolint:forbidigo // no event reports that the broker is reachable again
	}
}

// tasks is a set of goroutines to wait for. It is safe for concurrent use.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when no goroutine runs; nil if nothing waits
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

// wait returns when no goroutine runs or ctx ends.
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
