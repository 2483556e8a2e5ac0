package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commands"
	"github.com/redeliver/redeliver/adapters/kafka/internal/diagnose"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/actor"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// SendCommand sends a command, see deadletter.NewCommand, and returns when the broker has confirmed it. The consumers
// read it within a second or two. The first command creates the control topic, and takes up to ten seconds.
func (w *waiting) SendCommand(ctx context.Context, asked deadletter.Command) (deadletter.Command, error) {
	cmd, err := deadletter.NewCommand(asked)
	if err != nil {
		return cmd, err
	}
	groups, _ := w.c.admin.Sarama.ListConsumerGroups() // after an error, those of the brokers that have answered
	if groups[w.group] == "share" {                    // its protocol type
		return cmd, fmt.Errorf("kafka: %s is a share group: its consumers read no commands about messages of %s that wait; they ask Policy.Invalid before each attempt", w.group, w.topic)
	}
	if cmd.Kind == deadletter.CommandRelease {
		if err := w.checkRelease(&cmd); err != nil {
			return cmd, err
		}
	}
	return cmd, w.control.Send(ctx, &cmd)
}

// checkRelease refuses a release of levels that do not exist, or of a group whose members announce OrderThroughRetries.
func (w *waiting) checkRelease(cmd *deadletter.Command) error {
	var levels []string
	for i := range w.levels {
		if w.levels[i].level > 0 {
			levels = append(levels, delayqueue.LevelName(w.levels[i].level))
		}
	}
	for _, name := range cmd.Filter.Levels {
		if !slices.Contains(levels, name) {
			return fmt.Errorf("kafka: group %s has no level %s of %s; its levels are %s", w.group, name, w.topic, strings.Join(levels, ", "))
		}
	}
	found, err := w.c.admin.DescribeGroup(w.group)
	switch {
	case errors.Is(err, cluster.ErrUnseenMembers): // a member with OrderThroughRetries refuses the release itself
		return nil
	case err != nil:
		return err
	case diagnose.IsPerKey(found, w.topic):
		return commands.ErrPerKeyRelease
	default:
		return nil
	}
}

// Release implements [mq.Releaser] with a command to the members. It returns the number of messages that wait on the levels.
func (c *client) Release(ctx context.Context, cfg mq.ReleaseConfig) (released int64, err error) {
	asked := deadletter.Command{Kind: deadletter.CommandRelease, Who: actor.Of(ctx), Why: cmp.Or(cfg.Reason, "released"), Everything: len(cfg.Levels) == 0}
	for _, level := range cfg.Levels {
		asked.Filter.Levels = append(asked.Filter.Levels, delayqueue.LevelName(level))
	}
	err = c.withWaiting(ctx, cfg.Topic, func(w *waiting) error {
		levels, err := w.Levels(ctx)
		if err != nil {
			return err
		}
		if _, err := w.SendCommand(ctx, asked); err != nil {
			return err
		}
		for _, l := range levels {
			if asked.Filter.MatchLevel(l.Level) {
				released += l.Depth
			}
		}
		return nil
	})
	return released, err
}

// createControl creates the control topic if it does not exist.
func (w *waiting) createControl() error {
	existing, err := w.c.admin.Topics(w.control.Name, w.back)
	if err != nil || existing[w.control.Name] != nil {
		return err
	}
	if existing[w.back] == nil {
		return fmt.Errorf("kafka: %s does not exist any more: nothing waits for group %s", w.back, w.group)
	}
	return w.c.topics.CreateCompanion(w.control.Name, topology.Control, existing[w.back])
}

// Commands returns the commands to the consumers, oldest first. Expired ones are deleted when the next
// command is sent.
func (w *waiting) Commands(ctx context.Context) ([]deadletter.Command, error) {
	return w.control.Commands(ctx)
}

// Pause pauses a topic for all members of the client's group, until [mq.Operations.Resume]. Nothing new begins, neither first
// attempts nor retries; running handlers continue. The members stay in the group, and pause within seconds. Members
// that start later are paused, too. [mq.Operations.Paused] returns the reason. A second Pause replaces the first. The group
// must have subscribed to the topic before. The first command to a group creates its control topic.
func (c *client) Pause(ctx context.Context, topic, reason string) error {
	return c.withWaiting(ctx, topic, func(w *waiting) error { return w.Pause(ctx, reason) })
}

// PauseNew is [mq.Operations.Pause], but retries that fall due continue.
func (c *client) PauseNew(ctx context.Context, topic, reason string) error {
	return c.withWaiting(ctx, topic, func(w *waiting) error { return w.PauseNew(ctx, reason) })
}

// Resume ends a pause. It does nothing if there is none.
func (c *client) Resume(ctx context.Context, topic string) error {
	return c.withWaiting(ctx, topic, func(w *waiting) error { return w.Resume(ctx) })
}

func (c *client) withWaiting(ctx context.Context, topic string, do func(*waiting) error) error {
	w, err := c.openWaiting(ctx, mq.WaitingConfig{Topic: topic})
	if err != nil {
		return err
	}
	defer w.Close()
	return do(w)
}

// Pause is [mq.Operations.Pause] for the group of w.
func (w *waiting) Pause(ctx context.Context, reason string) error {
	return w.setPaused(ctx, reason, false)
}

// PauseNew is [mq.Operations.PauseNew] for the group of w.
func (w *waiting) PauseNew(ctx context.Context, reason string) error {
	return w.setPaused(ctx, reason, true)
}

func (w *waiting) setPaused(ctx context.Context, reason string, newOnly bool) error {
	mark := engine.NewPauseMark(ctx, reason, newOnly)
	return w.control.SetPaused(ctx, &mark)
}

// Resume is [mq.Operations.Resume] for the group of w.
func (w *waiting) Resume(ctx context.Context) error { return w.control.SetPaused(ctx, nil) }

// Paused returns by whom, when and why a topic was paused for the client's group, or nil.
func (c *client) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	return c.pauseMark(ctx, topic, c.cfg.Group)
}

// Paused is [mq.Operations.Paused] for the group of w.
func (w *waiting) Paused(ctx context.Context) (*redeliver.PauseMark, error) {
	return w.c.pauseMark(ctx, w.topic, w.group)
}

// pauseMark returns the mark of a paused group, or nil.
func (c *client) pauseMark(ctx context.Context, topic, group string) (*redeliver.PauseMark, error) {
	control := c.cfg.names().ControlTopic(topic, group)
	existing, err := c.admin.Topics(control)
	if err != nil || existing[control] == nil {
		return nil, err
	}
	return commands.Paused(ctx, c.admin.Client, control)
}
