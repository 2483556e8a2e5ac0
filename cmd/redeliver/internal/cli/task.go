package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/actor"
)

// taskRow is a task of the history. Durations are text, such as 30s.
type taskRow struct {
	ID         string             `json:"id"`
	Kind       string             `json:"kind"`   // replay, edit, purge, import
	Status     string             `json:"status"` // running, paused, cancelled, stopped, failed, done, interrupted
	DLQ        string             `json:"dlq"`
	ReplayTo   string             `json:"replay_to,omitempty"` // where a replay sends messages
	ReadBy     string             `json:"read_by,omitempty"`   // the group whose committed messages it skips
	Who        string             `json:"who"`
	Note       string             `json:"note"`
	Detail     string             `json:"detail,omitempty"` // why it stopped or failed
	Created    time.Time          `json:"created"`
	Updated    time.Time          `json:"updated"`
	Ended      time.Time          `json:"ended,omitzero"`
	Filter     *deadletter.Filter `json:"filter,omitempty"`
	Causes     []deadletter.Cause `json:"causes,omitempty"` // of the filter's fingerprints
	Rate       float64            `json:"rate,omitempty"`   // messages per second; absent for no limit
	Canary     []int              `json:"canary,omitempty"`
	Watch      string             `json:"watch,omitempty"`
	Window     int                `json:"window,omitempty"`
	MaxReplays int                `json:"max_replays,omitempty"`
	Change     bool               `json:"change,omitempty"` // only replay: --through
	Expect     int64              `json:"expect,omitempty"` // only purge: maximum number of removed messages
	Diff       *deadletter.Diff   `json:"diff,omitempty"`   // only edit
	Counts     deadletter.Counts  `json:"counts"`
}

func taskRowOf(t *deadletter.Task, source string) taskRow {
	row := taskRow{
		ID: t.ID, Kind: string(t.Kind), Status: string(t.Status), DLQ: t.DLQ, Who: t.Who, Note: t.Why, Detail: t.Note,
		Created: t.Created, Updated: t.Updated, Ended: t.Ended, Rate: t.Rate, Canary: t.Canary, Window: t.Window, ReadBy: t.ReadBy,
		MaxReplays: t.MaxReplays, Causes: t.Causes, Change: t.Change, Expect: t.Expect, Diff: t.Diff, Counts: t.Counts,
	}
	if t.Kind == deadletter.KindReplay || t.Kind == deadletter.KindEdit {
		row.ReplayTo = cmp.Or(t.ReplayTo, source)
	}
	if t.Kind == deadletter.KindReplay || t.Kind == deadletter.KindPurge {
		row.Filter = &t.Filter
	}
	if len(t.Canary) > 0 {
		row.Watch = t.Watch.String()
	}
	return row
}

// counts formats the outcomes of a task.
func counts(c *deadletter.Counts) string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{
		{c.Replayed, "replayed"}, {c.Changed, "of them changed"}, {c.Edited, "edited"}, {c.Purged, "purged"}, {c.Imported, "imported"},
		{c.Skipped, "replayed too often"}, {c.Refused, "refused"}, {c.Returned, "came back"},
	} {
		if p.n > 0 {
			parts = append(parts, thousands(p.n)+" "+p.what)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing yet")
}

// signature is the user who changes something, and the reason.
type signature struct{ who, note string }

// inHistory is the help of --who for a task.
const inHistory = "Record this `name` in the task history"

func (s *signature) flags(flags *pflag.FlagSet) {
	s.define(flags, "Record this `text` in the task history: why you do this (required, except with --dry-run)", inHistory)
}

func (s *signature) define(flags *pflag.FlagSet, note, who string) {
	flags.StringVar(&s.note, "note", "", note)
	s.whoFlag(flags, who)
}

func (s *signature) whoFlag(flags *pflag.FlagSet, help string) {
	flags.StringVar(&s.who, "who", "", help+" (default $"+envWho+", or user@host)")
}

// sign fills in the user, and requires a note unless it is a dry run.
func (a *app) sign(s *signature, dry bool) error {
	if s.note == "" && !dry {
		return missing("--note", "why you do this, for the task history")
	}
	s.who = cmp.Or(s.who, a.Env(envWho), actor.Of(context.Background()))
	return nil
}

// printEnded prints a task that this process has run, and returns its error.
func (p *printer) printEnded(ctx context.Context, q deadletter.Queue, t *deadletter.Task, err error) error {
	row := taskRowOf(t, q.Info().ReplayTo)
	printed := p.printOne(row, func(c *details) {
		c.line("task", row.ID)
		c.line("kind", row.Kind)
		c.line("dlq", row.DLQ)
		c.line("replay to", row.ReplayTo)
		c.line("status", state(row.Status))
		c.line("filter", filterText(t))
		c.line("detail", row.Detail)
		c.line("done", counts(&row.Counts))
		if d := row.Diff; d != nil {
			drawDiff(c, d)
		}
	})
	if printed != nil {
		return errors.Join(err, printed)
	}
	again := fmt.Sprintf("redeliver dlq resume %s %s", t.DLQ, t.ID)
	done := t.Counts.Replayed + t.Counts.Edited + t.Counts.Purged + t.Counts.Imported
	stay := t.Counts.Skipped + t.Counts.Refused
	switch {
	case t.Status == deadletter.StatusDone && err != nil: // the messages are done, but a later step failed
		return failed(codePartly, "task %s is done, but: %w", t.ID, err)
	case t.Status == deadletter.StatusDone && stay > 0:
		return failed(codePartly, "%d messages remain in %s: %d were replayed too often, and %d were refused; see redeliver dlq show", stay, t.DLQ, t.Counts.Skipped, t.Counts.Refused)
	case t.Status == deadletter.StatusDone:
		return nil
	case ctx.Err() != nil && t.Resumable():
		return failed(codeInterrupted, "task %s is paused; continue with: %s", t.ID, again)
	case ctx.Err() != nil:
		return failed(codeInterrupted, "task %s has ended: %w", t.ID, err)
	case err == nil && t.Status == deadletter.StatusCancelled:
		return failed(codePartly, "task %s was cancelled: %s", t.ID, t.Note)
	case err == nil: // paused by another process, or stopped by its canary
		return failed(codePartly, "task %s is %s: %s; continue with: %s", t.ID, t.Status, t.Note, again)
	case done > 0 && t.Resumable():
		return failed(codePartly, "task %s is %s: %w; continue with: %s", t.ID, t.Status, err, again)
	case done > 0:
		return failed(codePartly, "task %s is %s: %w", t.ID, t.Status, err)
	default:
		return failed(codeFailed, "task %s is %s: %w", t.ID, t.Status, err)
	}
}

func drawDiff(c *details, d *deadletter.Diff) {
	c.line("position", string(d.Position))
	c.line("id", d.ID)
	if d.BodyBefore != d.BodyAfter {
		c.line("body before", d.BodyBefore)
		c.line("body after", d.BodyAfter)
	}
	g := newGrid(false, []string{"HEADER", "BEFORE", "AFTER"})
	for _, h := range d.Headers {
		g.add([]any{h.Name, valuesOf(h.Before), valuesOf(h.After)})
	}
	c.table("headers", g)
	compareBodies(d.Before, d.After).draw(c)
}

func valuesOf(values [][]byte) string {
	if len(values) == 0 {
		return "-"
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = plain(v)
	}
	return strings.Join(texts, ", ")
}
