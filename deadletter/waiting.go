package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
)

// Command asks a group's consumers to act on waiting messages. Consumers read commands from a place of the adapter, on
// Kafka the topic "<topic>.<group>.control", and apply them when they read the messages. A Command is plain data, kept
// as JSON; make it with [NewCommand].
type Command struct {
	ID   string      `json:"id"`
	Kind CommandKind `json:"kind"`
	// The user's name and reason. Both are required.
	Who string `json:"who"`
	Why string `json:"why"`
	// Created is the time of the request. The command does not apply to messages that were
	// scheduled later. Consumers use the broker's clock if that is earlier.
	Created time.Time `json:"created"`
	// Expires is when the command ends: CommandLife after Created.
	Expires time.Time `json:"expires"`
	// Filter selects the messages. A filter that matches all needs Everything. A release applies to
	// whole levels, so its filter has nothing but Levels.
	Filter     WaitingFilter `json:"filter,omitzero"`
	Everything bool          `json:"everything,omitempty"`
}

// CommandLife is how long a command is in force. Messages that are due later than that are not cancelled.
const CommandLife = 30 * 24 * time.Hour

// CommandKind is the effect of a command on its messages.
type CommandKind string

// The kinds of commands.
const (
	CommandRelease CommandKind = "release" // they are due at once
	CommandCancel  CommandKind = "cancel"  // they go to the DLQ, invalidated, when they are due
)

// WaitingFilter selects waiting messages. All fields that are set must match.
type WaitingFilter struct {
	// Levels are names of levels, as returned by delayqueue.LevelName. A message must wait on one of
	// them.
	Levels []string `json:"levels,omitempty"`
	// Filter selects by the messages themselves. A waiting message has no reason or position.
	// It will have another fingerprint in the DLQ.
	Filter Filter `json:"filter,omitzero"`
}

// Match reports whether a message that waits on a level matches.
func (f *WaitingFilter) Match(m *Message, level time.Duration) bool {
	return f.MatchLevel(level) && f.Filter.Match(m)
}

// MatchLevel reports whether messages on a level may match.
func (f *WaitingFilter) MatchLevel(level time.Duration) bool {
	return len(f.Levels) == 0 || slices.Contains(f.Levels, delayqueue.LevelName(level))
}

// All reports whether the filter matches every message.
func (f *WaitingFilter) All() bool { return len(f.Levels) == 0 && f.Filter.All() }

// Check returns all problems of a filter.
func (f *WaitingFilter) Check() error {
	var ps check.Problems
	for i, name := range f.Levels {
		if _, ok := delayqueue.ParseLevel(name); !ok {
			ps.Add(fmt.Sprintf("Filter.Levels[%d]", i), fmt.Sprintf("%q", name), "must be a level as in the name of its topic: 30s, 1m30s, 1h")
		}
	}
	if len(f.Filter.Reasons)+len(f.Filter.Positions) > 0 {
		ps.Add("Filter.Filter", "Reasons or Positions", "must not be set: a message that waits has none")
	}
	if f.Filter.BodyText != "" {
		ps.Add("Filter.Filter.BodyText", f.Filter.BodyText, "must not be set: consumers of other versions would ignore it and cancel more messages")
	}
	return errors.Join(ps.Err(), f.Filter.check())
}

// NewCommand gives a request an id and its times. It returns an error with all problems of the
// request.
func NewCommand(c Command) (Command, error) {
	var ps check.Problems
	checkWhoWhy(&ps, c.Who, c.Why)
	c.Created = now()
	c.Expires = c.Created.Add(CommandLife)
	if err := errors.Join(ps.Err(), c.Check()); err != nil {
		return c, err
	}
	c.ID = newID(c.Created)
	return c, nil
}

// Check returns all problems of a command.
func (c *Command) Check() error {
	var ps check.Problems
	if c.Kind != CommandRelease && c.Kind != CommandCancel {
		ps.Add("Kind", fmt.Sprintf("%q", c.Kind), "must be release or cancel")
	}
	if c.Filter.All() != c.Everything {
		ps.Add("Everything", c.Everything, "must be set if and only if the filter matches everything")
	}
	if c.Kind == CommandRelease && !c.Filter.Filter.All() {
		ps.Add("Filter.Filter", "set", "must not be set: a release takes whole levels. To take single messages out, cancel them and replay them from the DLQ")
	}
	return errors.Join(ps.Err(), c.Filter.Check())
}

// AppliesTo reports whether a command applies to a message that waits on a level; the level is 0 for
// the retry topic. m.Time is when the message was written there, or zero if that is unknown.
func (c *Command) AppliesTo(m *Message, level time.Duration, now time.Time) bool {
	at := scheduled(m)
	return now.Before(c.Expires) && !at.IsZero() && !at.After(c.Created) && c.Filter.Match(m, level)
}

// scheduled returns when a message was scheduled: at its latest failure, because a hop only writes it again. A
// postponed message is scheduled each time it is written, because postponing does not change its latest failure.
func scheduled(m *Message) time.Time {
	if m.State.Attempts == 0 || m.State.LastFailed.IsZero() || !m.State.PostponedSince.IsZero() {
		return m.Time
	}
	return m.State.LastFailed
}

// Cancelled returns the error of a message that a command sent to the DLQ.
func (c *Command) Cancelled() error {
	return &redeliver.InvalidError{Err: fmt.Errorf("cancelled while it waited, by %s: %s (command %s)", c.Who, c.Why, c.ID)}
}

// WaitingMessage is a message that waits.
type WaitingMessage struct {
	*Message

	Level time.Duration // 0 for the retry topic, which is not a level
	Place string        // the topic or queue
}

// WaitingLevel describes the messages that wait in one place.
type WaitingLevel struct {
	Level time.Duration // 0 for the retry topic, which is not a level
	Place string        // the topic or queue
	// Depth is how many messages wait there; -1 means unknown. Exact is false if the broker only
	// estimates it, or also counts other records.
	Depth int64
	Exact bool
	// Oldest is when the first message was written there, Due when it is due. After Due it is late. Zero means unknown.
	Oldest, Due time.Time
}
