package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// refreshLocked reads the control topic, if it exists.
func (w *Waiting) refreshLocked(ctx context.Context) error {
	if w.control.Client == nil {
		return nil
	}
	return w.log.refresh(ctx, &w.control)
}

// appendTime is the setting with which the broker's clock times commands.
const appendTime = "message.timestamp.type=LogAppendTime"

// checkControl refuses a control topic that would lose commands, or whose commands would be ignored.
func (w *Waiting) checkControl() error {
	topic := w.control.Topic
	partitions, err := w.client.Partitions(topic)
	if err != nil {
		return fmt.Errorf("kafka: asking for the partitions of %s: %w", topic, err)
	}
	settings, err := w.c.admin.Settings(topic)
	if err != nil {
		return err
	}
	var ps redeliver.Problems
	if n := len(partitions); n != 1 {
		ps.Add("topic "+topic+" partitions", n, "must be 1: everybody must read it in the same order")
	}
	if policy := settings[topic]["cleanup.policy"]; policy != "compact" {
		ps.Add("topic "+topic+" cleanup.policy", policy, "must be compact: commands would be forgotten")
	}
	if by := settings[topic]["message.timestamp.type"]; by != "LogAppendTime" {
		ps.Add("topic "+topic+" message.timestamp.type", by, "must be LogAppendTime, so that the broker's clock times a command: "+
			"kafka-configs.sh --alter --entity-type topics --entity-name "+topic+" --add-config "+appendTime)
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}

// checkRelease refuses a release of levels that do not exist, or of a group whose members announce the order PerKey.
func (w *Waiting) checkRelease(cmd *deadletter.Command) error {
	for _, name := range cmd.Filter.Levels {
		var levels []string
		for i := range w.levels {
			if w.levels[i].level > 0 {
				levels = append(levels, delayqueue.LevelName(w.levels[i].level))
			}
		}
		if !slices.Contains(levels, name) {
			return fmt.Errorf("kafka: group %s has no level %s of %s; its levels are %s", w.group, name, w.topic, strings.Join(levels, ", "))
		}
	}
	found, err := w.c.admin.Sarama.DescribeConsumerGroups([]string{w.group})
	if err == nil && len(found) == 1 && !errors.Is(found[0].Err, sarama.ErrNoError) {
		err = found[0].Err
	}
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return fmt.Errorf("kafka: asking group %s for its order: %w", w.group, err)
	}
	for _, group := range found {
		for _, m := range group.Members {
			meta, err := m.GetMemberMetadata()
			if err == nil && meta != nil && slices.Contains(meta.Topics, w.topic) && strings.HasSuffix(string(meta.UserData), perKeySuffix) {
				return errPerKeyRelease
			}
		}
	}
	return nil
}

// createControlLocked creates the control topic if it does not exist.
func (w *Waiting) createControlLocked() error {
	if w.control.Client != nil {
		return nil
	}
	existing, err := w.c.admin.Topics(w.control.Topic, w.back)
	if err != nil {
		return err
	}
	if existing[w.control.Topic] == nil {
		if existing[w.back] == nil {
			return fmt.Errorf("kafka: %s does not exist any more: nothing waits for group %s", w.back, w.group)
		}
		if err := w.c.createCompanion(w.control.Topic, controlTopic, existing[w.back]); err != nil {
			return err
		}
	}
	w.control.Client = w.client
	return nil
}

// SendCommand sends a command, see deadletter.NewCommand, and returns when the broker has confirmed it. The consumers
// read it within a second or two. The first command creates the control topic, and takes up to ten seconds.
func (w *Waiting) SendCommand(ctx context.Context, asked deadletter.Command) (deadletter.Command, error) {
	cmd, err := deadletter.NewCommand(asked)
	if err != nil {
		return cmd, err
	}
	if cmd.Kind == deadletter.ReleaseWaiting {
		if err := w.checkRelease(&cmd); err != nil {
			return cmd, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.createControlLocked(); err != nil {
		return cmd, err
	}
	if err := w.checkControl(); err != nil {
		return cmd, err
	}
	if err := w.refreshLocked(ctx); err != nil {
		return cmd, err
	}
	e, err := produce.JSONEntry(commandPrefix+cmd.ID, &cmd)
	if err != nil {
		return cmd, err
	}
	entries := []produce.Entry{e}
	for i := range w.log.commands {
		if old := &w.log.commands[i]; time.Since(old.Expires) > deadletter.DefaultCommandLife { // it expired long ago
			entries = append(entries, produce.Tombstone(commandPrefix+old.ID))
		}
	}
	return cmd, w.c.writeEntries(ctx, w.control.Topic, entries...)
}

// Withdraw takes a command back; its effects so far stay. The error is deadletter.ErrNoTask if
// there is no such command.
func (w *Waiting) Withdraw(ctx context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refreshLocked(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.log.commands, func(c deadletter.Command) bool { return c.ID == id }) {
		return fmt.Errorf("%w: command %q is not in %s", deadletter.ErrNoTask, id, w.control.Topic)
	}
	return w.c.writeEntries(ctx, w.control.Topic, produce.Tombstone(commandPrefix+id))
}

// Commands returns the commands to the consumers, oldest first. Expired ones stay for a day, then
// until the next command.
func (w *Waiting) Commands(ctx context.Context) ([]deadletter.Command, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refreshLocked(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(w.log.commands), nil
}
