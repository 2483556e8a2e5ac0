package kafka

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// standing is the commands that hold now, the latest first: it is the one that counts
// where several take one message.
type standing struct {
	commands []deadletter.Command
	over     chan struct{} // closed when others stand
}

// stand says which commands hold now.
func (c *control) stand(now time.Time) {
	for _, cmd := range c.restand(now) {
		c.r.tell("command "+string(cmd.Kind), fmt.Sprintf("%s by %s: %s", cmd.ID, cmd.Who, cmd.Why), nil)
	}
}

// restand is stand, and returns the commands that are new. Nobody is told under the
// lock: the lanes need it.
func (c *control) restand(now time.Time) (fresh []deadletter.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []deadletter.Command
	for _, cmd := range c.book.commands {
		if now.Before(cmd.Expires) {
			all = append(all, cmd)
		}
	}
	slices.SortStableFunc(all, func(x, y deadletter.Command) int {
		return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(y.ID, x.ID))
	})
	was := c.standing.Load()
	switch {
	case was == nil && all == nil:
		return nil
	case was != nil && slices.EqualFunc(was.commands, all, func(x, y deadletter.Command) bool { return x.ID == y.ID }):
		return nil
	case all == nil:
		c.standing.Store(nil)
	default:
		c.standing.Store(&standing{all, make(chan struct{})})
	}
	for id := range c.paces {
		if !slices.ContainsFunc(all, func(cmd deadletter.Command) bool { return cmd.ID == id }) {
			delete(c.paces, id)
		}
	}
	for _, cmd := range all {
		if was == nil || !slices.ContainsFunc(was.commands, func(old deadletter.Command) bool { return old.ID == cmd.ID }) {
			fresh = append(fresh, cmd)
		}
	}
	if was != nil {
		close(was.over)
	}
	return fresh
}

// choose is the command that counts for a message, nil for none.
func (s *standing) choose(m *deadletter.Message, level time.Duration, now time.Time) *deadletter.Command {
	for i := range s.commands {
		if s.commands[i].Takes(m, level, now) {
			return &s.commands[i]
		}
	}
	return nil
}

// pacer keeps the rate of one command in this process. It never makes up for time
// that was lost.
type pacer struct{ free time.Time }

// pace returns how long to wait before n messages may go at this rate, and counts them.
func (c *control) pace(id string, n int, rate float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.paces[id]
	if p == nil {
		p = &pacer{}
		c.paces[id] = p
	}
	now := time.Now()
	begins := now
	if p.free.After(now) {
		begins = p.free
	}
	p.free = begins.Add(time.Duration(float64(n) / rate * float64(time.Second)))
	return begins.Sub(now)
}

// cancelled tells a lane which command cancels what it is to hand out now, nil for none.
func (c *control) cancelled(e *entry, level time.Duration) *deadletter.Command {
	s := c.standing.Load()
	if s == nil {
		return nil
	}
	m := waitingMessage(&e.rec, e.state)
	m.Time = time.UnixMilli(e.written)
	if cmd := s.choose(m, level, time.Now()); cmd != nil && cmd.Kind == deadletter.CancelWaiting && !s.releasedAfter(cmd, m, level) {
		return cmd
	}
	return nil
}

// releasedAfter tells whether a message on the way back may be there because a command
// after this one has released it from its level: that it is there no more is no reason
// to cancel it.
func (s *standing) releasedAfter(cmd *deadletter.Command, m *deadletter.Message, level time.Duration) bool {
	for i := range s.commands {
		later := s.commands[i]
		if level != 0 || later.ID == cmd.ID {
			return false
		}
		later.Filter.Levels = nil
		if later.Kind == deadletter.ReleaseWaiting && later.Takes(m, level, time.Now()) {
			return true
		}
	}
	return false
}

// waitingMessage is a record as a filter sees it.
func waitingMessage(rec *record, st *redeliver.State) *deadletter.Message {
	m := &deadletter.Message{ID: st.ID, Key: rec.Key, Body: rec.Value, State: *st, Filler: deadletter.FilledByRedeliver}
	m.Headers = make([]deadletter.Header, 0, len(rec.Headers))
	for _, h := range rec.Headers {
		if h != nil {
			m.Headers = append(m.Headers, deadletter.Header{Name: string(h.Key), Value: h.Value})
		}
	}
	return m
}
