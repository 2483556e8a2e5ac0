package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/actor"
)

// An operator pauses a subscription for its whole group with a mark on the broker. Each process looks for the mark
// before it reads the first message, so that a pause survives restarts, and then at least every PausePollInterval. While there
// is a mark, the subscription's Gate is closed, and lanes, suspects and an adapter's intake wait for it to open. A mark with
// NewOnly closes NewGate instead.

// PausePollInterval is how often a process looks whether its group is paused.
const PausePollInterval = 10 * time.Second

// pausePollTimeout bounds one Poll.
const pausePollTimeout = 5 * time.Second

// NewPauseMark returns a mark of the person whom package actor names.
func NewPauseMark(ctx context.Context, reason string, newOnly bool) redeliver.PauseMark {
	return redeliver.PauseMark{By: actor.Of(ctx), At: time.Now(), Reason: reason, NewOnly: newOnly}
}

// Paused reports whether an operator has paused the group.
func (s *Subscription) Paused() bool { return s.paused.Load() != nil }

// SetPaused begins a pause of the group, or ends it if mark is nil.
func (s *Subscription) SetPaused(mark *redeliver.PauseMark) {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	previous := s.paused.Swap(mark)
	before, after := s.gateOf(previous), s.gateOf(mark)
	if before == after {
		return
	}
	if after != nil {
		after.Close()
		s.EmitChange(redeliver.ChangeGroupPaused, pauseText(mark), nil)
	}
	if before != nil {
		before.Open()
	}
	if after == nil {
		s.EmitChange(redeliver.ChangeGroupResumed, "it was paused "+pauseText(previous), nil)
	}
}

// gateOf returns the gate that a mark closes, or nil for none.
func (s *Subscription) gateOf(m *redeliver.PauseMark) *Gate {
	switch {
	case m == nil:
		return nil
	case m.NewOnly:
		return &s.NewGate
	default:
		return &s.Gate
	}
}

func pauseText(m *redeliver.PauseMark) string {
	text := fmt.Sprintf("by %s at %s: %s", m.By, m.At.UTC().Format(time.RFC3339), m.Reason)
	if m.At.IsZero() {
		text = "by hand: " + m.Reason
	}
	if m.NewOnly {
		text += " (retries continue)"
	}
	return text
}

// PausePoller looks for the mark of a subscription's group.
type PausePoller struct {
	Sub *Subscription
	// Mark returns the mark, or nil.
	Mark func(context.Context) (*redeliver.PauseMark, error)

	failure Lasting
}

// Poll looks for the mark once. An error does not change whether the group is paused. Lasting says which errors are reported.
func (p *PausePoller) Poll(ctx context.Context) {
	pollCtx, cancel := context.WithTimeout(ctx, pausePollTimeout)
	defer cancel()
	mark, err := p.Mark(pollCtx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if p.failure.Failed(err) {
			p.Sub.EmitChange(redeliver.ChangeCommandsNotRead, "trying again; until then the group stays as it is, paused or not", err)
		}
		return
	}
	if p.failure.Worked() {
		p.Sub.EmitChange(redeliver.ChangeCommandsRead, "", nil)
	}
	p.Sub.SetPaused(mark)
}

// Run calls Poll every PausePollInterval until ctx ends. It calls paused, which may be nil, after each Poll that found the group
// still paused. By then every process of the group has found the mark, so none of them reads a message that this one returns to the broker.
func (p *PausePoller) Run(ctx context.Context, paused func()) {
	tick := time.NewTicker(PausePollInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		previous := p.Sub.Paused()
		if p.Poll(ctx); previous && p.Sub.Paused() && !p.failure.Fails() && paused != nil {
			paused()
		}
	}
}
