package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// keptCommands is how many commands that have expired stay in the history.
const keptCommands = 20

// errNoControl is the error of commands to consumers that read none.
func (w *Waiting) errNoControl() error {
	return fmt.Errorf("kafka: topic %s does not exist, so the consumers of group %s read no commands: they create it when they start, if they may; else create it with 1 partition and cleanup.policy=compact, and start them anew",
		w.control.topic, w.group)
}

// Command gives the consumers a command, see [deadletter.NewCommand], and returns when
// that is confirmed. They read it within a second or two and obey in the background;
// [Waiting.Commands] says how far they are.
func (w *Waiting) Command(ctx context.Context, asked deadletter.Command) (deadletter.Command, error) {
	cmd, err := deadletter.NewCommand(asked)
	if err != nil {
		return cmd, err
	}
	if w.control.client == nil {
		return cmd, w.errNoControl()
	}
	if err := w.refresh(ctx); err != nil {
		return cmd, err
	}
	e, err := commandEntry(&cmd)
	if err != nil {
		return cmd, err
	}
	return cmd, w.c.note(ctx, w.control.topic, append(w.outworn(cmd.Created), e)...)
}

// outworn are the ends of commands that expired long ago.
func (w *Waiting) outworn(now time.Time) (entries []stateEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range len(w.book.commands) - keptCommands {
		if cmd := &w.book.commands[i]; now.After(cmd.Expires) {
			entries = append(entries, w.ends(cmd.ID)...)
		}
	}
	return entries
}

// ends are what takes a command and its progress out of the topic.
func (w *Waiting) ends(id string) []stateEntry {
	entries := []stateEntry{entryOf(commandPrefix+id, nil)}
	for at := range w.book.progress[id] {
		entries = append(entries, entryOf(progressKey(id, at), nil))
	}
	return entries
}

// Withdraw takes a command back: what it has not done yet is not done. It is
// deadletter.ErrNoTask where there is none.
func (w *Waiting) Withdraw(ctx context.Context, id string) error {
	if w.control.client == nil {
		return w.errNoControl()
	}
	if err := w.refresh(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	known := slices.ContainsFunc(w.book.commands, func(c deadletter.Command) bool { return c.ID == id })
	ends := w.ends(id)
	w.mu.Unlock()
	if !known {
		return fmt.Errorf("%w: command %q is not in %s", deadletter.ErrNoTask, id, w.control.topic)
	}
	return w.c.note(ctx, w.control.topic, ends...)
}

// Commands says what the consumers were asked to do and how far they are, the oldest
// command first.
func (w *Waiting) Commands(ctx context.Context) ([]deadletter.CommandProgress, error) {
	if err := w.refresh(ctx); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]deadletter.CommandProgress, 0, len(w.book.commands))
	for _, cmd := range w.book.commands {
		row := deadletter.CommandProgress{Command: cmd}
		for i := range w.levels {
			row.Partitions += int(w.levels[i].partitions)
		}
		for _, p := range w.book.progress[cmd.ID] {
			row.Released, row.Cancelled, row.Refused = row.Released+p.Released, row.Cancelled+p.Cancelled, row.Refused+p.Refused
			if p.Walked {
				row.Walked++
			}
			if p.Updated.After(row.Updated) {
				row.Updated = p.Updated
			}
			if p.Note != "" && !slices.Contains(row.Notes, p.Note) && len(row.Notes) < 5 {
				row.Notes = append(row.Notes, p.Note)
			}
		}
		slices.Sort(row.Notes)
		all = append(all, row)
	}
	return all, nil
}
