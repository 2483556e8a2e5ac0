package deadletter

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Command asks the consumers of a group to act on messages that wait. They read it
// where their adapter has a place for it (on Kafka the topic
// "<topic>.<group>.control") and obey it as they meet the messages. It is plain
// data, and is kept as JSON. [NewCommand] makes one.
type Command struct {
	ID   string      `json:"id"`
	Kind CommandKind `json:"kind"`
	// The user's name and reason. Both are required.
	Who string `json:"who"`
	Why string `json:"why"`
	// Created is when it was asked: what was scheduled later is not taken. Consumers
	// trust it no further than the clock of the broker.
	Created time.Time `json:"created"`
	// Expires is when it is forgotten. Default DefaultCommandLife after Created.
	Expires time.Time `json:"expires"`
	// Filter says which messages. One that takes all wants Everything. A release takes
	// whole levels: its filter has nothing but Levels.
	Filter     WaitingFilter `json:"filter,omitzero"`
	Everything bool          `json:"everything,omitempty"`
}

// DefaultCommandLife is how long a command stands that does not say.
const DefaultCommandLife = 24 * time.Hour

// CommandKind is what becomes of the messages that a command takes.
type CommandKind string

// The kinds of commands.
const (
	ReleaseWaiting CommandKind = "release" // they are due at once
	CancelWaiting  CommandKind = "cancel"  // they go to the DLQ, invalidated, when they are due
)

// WaitingFilter says which waiting messages are meant. All that is set must hold.
type WaitingFilter struct {
	// Levels are names of levels, as delayqueue.LevelName has them: any of them.
	Levels []string `json:"levels,omitempty"`
	// Filter is about the messages themselves. A message that waits has no reason, no
	// position and no mark; its fingerprint is not the one that it will have in the DLQ.
	Filter Filter `json:"filter,omitzero"`
}

// Match reports whether a message that waits on a level is meant.
func (f *WaitingFilter) Match(m *Message, level time.Duration) bool {
	return f.OnLevel(level) && f.Filter.Match(m)
}

// OnLevel reports whether messages on a level may be meant.
func (f *WaitingFilter) OnLevel(level time.Duration) bool {
	return len(f.Levels) == 0 || slices.Contains(f.Levels, delayqueue.LevelName(level))
}

// All reports whether the filter takes every message.
func (f *WaitingFilter) All() bool { return len(f.Levels) == 0 && f.Filter.All() }

// Check returns all that is wrong with a filter.
func (f *WaitingFilter) Check() error {
	var ps redeliver.Problems
	for i, name := range f.Levels {
		if _, ok := delayqueue.ParseLevel(name); !ok {
			ps.Add(fmt.Sprintf("Filter.Levels[%d]", i), fmt.Sprintf("%q", name), "must be a level as it stands in its topic's name: 30s, 1m30s, 1h")
		}
	}
	if len(f.Filter.Reasons)+len(f.Filter.Positions) > 0 || f.Filter.Quarantined {
		ps.Add("Filter.Filter", "Reasons, Positions or Quarantined", "must not be set: a message that waits has none")
	}
	return errors.Join(ps.Err(), f.Filter.check())
}

// NewCommand gives what is asked an id and its times, and returns all that is wrong
// with it.
func NewCommand(c Command) (Command, error) {
	var ps redeliver.Problems
	signed(&ps, c.Who, c.Why)
	c.Created = now()
	if c.Expires.IsZero() {
		c.Expires = c.Created.Add(DefaultCommandLife)
	}
	if !c.Expires.After(c.Created) {
		ps.Add("Expires", c.Expires, "must be in the future, or zero for 24 hours from now")
	}
	if err := errors.Join(ps.Err(), c.Check()); err != nil {
		return c, err
	}
	c.ID = c.Created.Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
	return c, nil
}

// Check returns all that is wrong with what a command asks for.
func (c *Command) Check() error {
	var ps redeliver.Problems
	if c.Kind != ReleaseWaiting && c.Kind != CancelWaiting {
		ps.Add("Kind", fmt.Sprintf("%q", c.Kind), "must be release or cancel")
	}
	if c.Filter.All() != c.Everything {
		ps.Add("Everything", c.Everything, "must be set where the filter takes all, and nowhere else")
	}
	if c.Kind == ReleaseWaiting && !c.Filter.Filter.All() {
		ps.Add("Filter.Filter", "set", "must not be set: a release takes whole levels. To take single messages out, cancel them and replay them from the DLQ")
	}
	return errors.Join(ps.Err(), c.Filter.Check())
}

// Takes reports whether a command is about a message that waits on a level, 0 for the
// way back. m.Time is when it was written there, zero where that is not known.
func (c *Command) Takes(m *Message, level time.Duration, now time.Time) bool {
	at := scheduled(m)
	return now.Before(c.Expires) && !at.IsZero() && !at.After(c.Created) && c.Filter.Match(m, level)
}

// scheduled is when it was decided that a message waits. One that hops is written
// anew and was scheduled before; one that was postponed fails no more, and would be
// released for ever if its latest failure counted.
func scheduled(m *Message) time.Time {
	if m.State.Attempts == 0 || m.State.LastFailed.IsZero() || !m.State.PostponedSince.IsZero() {
		return m.Time
	}
	return m.State.LastFailed
}

// Cancelled is why a message went to the DLQ that a command cancelled.
func (c *Command) Cancelled() error {
	return &redeliver.InvalidError{Err: fmt.Errorf("cancelled while it waited, by %s: %s (command %s)", c.Who, c.Why, c.ID)}
}

// WaitingLevel is how much waits in one place.
type WaitingLevel struct {
	Level time.Duration // 0 where it is no level: the way back
	Place string        // the topic or queue
	// Depth is how many messages wait there; -1 is not known. Exact is false where
	// the broker only estimates it, or counts what is no message.
	Depth int64
	Exact bool
	// Oldest is when the first of them was written there, and Due when the first is
	// due: when that is over, they are late. Zero where that is not known.
	Oldest, Due time.Time
}
