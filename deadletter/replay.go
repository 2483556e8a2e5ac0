package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redeliver/redeliver/internal/check"
)

// Defaults and bounds of [ReplayOptions].
const (
	DefaultMaxReplays = 3
	DefaultWindow     = 500
	DefaultWatch      = 30 * time.Second

	maxWindow = 10_000
)

// ReplayOptions configures a replay. It requires Who and Why.
type ReplayOptions struct {
	// The user, for the history.
	Who string
	// Why is the reason, for the history.
	Why string
	// Filter selects the messages. Default: all that are in the DLQ now.
	Filter Filter
	// Rate bounds the messages that are sent in a second. Default 0, no bound.
	Rate float64
	// Canary has the numbers of messages of the first steps, such as 1, 10, 100. After each step the
	// replay watches the DLQ, and stops if a replayed message has come back. After the last step it
	// continues with the rest, and stops when more than one in ten has come back. Default: none.
	Canary []int
	// Watch is how long the replay watches the DLQ after each step of the canary. It misses
	// messages that come back later, so make it longer than the retries of the policy take. Default
	// 30 s.
	Watch time.Duration
	// Window bounds the messages that are sent before they are settled. A crash may leave that many
	// duplicates. Default 500, at most 10,000.
	Window int
	// MaxReplays bounds the replays of a message. A message with that many replays stays in the DLQ,
	// because it would probably come back again. Default 3.
	MaxReplays int
	// Change changes the copy of a message that is sent; the original stays in the DLQ until the copy is confirmed. It may replace the
	// body and the headers. The message stays, and is counted as refused, if Change returns an error, changes the key or a
	// [LockedHeader], or makes the body more than [MaxGrowth] bytes larger. A message that Change does not change is replayed unchanged. A
	// runner calls Change for one message after another. Resume needs it again. Optional.
	Change Change
	// Report is called with the progress. Optional.
	Report Report
}

func (r ReplayOptions) withDefaults() ReplayOptions {
	r.Watch = cmp.Or(r.Watch, DefaultWatch)
	r.Window = cmp.Or(r.Window, DefaultWindow)
	r.MaxReplays = cmp.Or(r.MaxReplays, DefaultMaxReplays)
	return r
}

// validate returns all problems at once.
func (r ReplayOptions) validate() error {
	var ps check.Problems
	checkWhoWhy(&ps, r.Who, r.Why)
	r.check(&ps)
	return errors.Join(ps.Err(), r.Filter.check())
}

// check adds the problems of all fields but Filter, Who and Why to ps.
func (r ReplayOptions) check(ps *check.Problems) {
	if r.Rate < 0 || math.IsNaN(r.Rate) || math.IsInf(r.Rate, 0) {
		ps.Add("Rate", r.Rate, "must be a positive number, or 0 for no bound")
	}
	ps.CheckCount("Window", r.Window, 1, maxWindow)
	ps.CheckCount("MaxReplays", r.MaxReplays, 1, 0)
	ps.CheckDuration("Watch", r.Watch, 0, 0)
	for i, n := range r.Canary {
		if n < 1 {
			ps.Add(fmt.Sprintf("Canary[%d]", i), n, "must be at least 1")
		}
	}
}

// checkWhoWhy adds a problem to ps if who or why is missing.
func checkWhoWhy(ps *check.Problems, who, why string) {
	if who == "" {
		ps.Add("Who", `""`, "it is required: the history says who did it")
	}
	if why == "" {
		ps.Add("Why", `""`, "it is required: the history says why")
	}
}

// Replay replays the messages that are in the DLQ now and match the filter. The task is recorded before
// the first message is sent. Replay returns when the task is done, paused, cancelled, stopped, failed or interrupted,
// as Status says. It also returns an error if ctx ended, the broker did not answer, or the claim was lost; Resume
// continues such a task. When ctx ends, Replay takes up to 10 s to confirm and record the messages that were sent.
func Replay(ctx context.Context, q Queue, r ReplayOptions) (Task, error) {
	r = r.withDefaults()
	if err := r.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindReplay, r.Who, r.Why)
	t.Filter, t.Rate, t.Canary, t.Watch, t.Window, t.MaxReplays = r.Filter, r.Rate, r.Canary, r.Watch, r.Window, r.MaxReplays
	t.Change = r.Change != nil
	return (&runner{q: q, task: t, report: r.Report, change: r.Change}).start(ctx)
}

// ResumeOptions configures [Resume]. The field Who is required.
type ResumeOptions struct {
	Who string
	// Change must be set for a replay that had a [ReplayOptions.Change], and only for one.
	Change Change
	// Report gets the progress and the results.
	Report Report
}

// Resume continues a replay or a purge that was paused, interrupted or stopped, or failed; see
// [Task.Resumable]. It settles only messages that were in the DLQ when the task was created, and begins again with the
// first step of the canary. It is refused while another runner has the DLQ, and if the DLQ was opened with another
// ReplayTo or ReadBy than the task's.
func Resume(ctx context.Context, q Queue, id string, opt ResumeOptions) (Task, error) {
	if opt.Who == "" {
		return Task{}, errors.New("resuming a task: the field Who is required")
	}
	claim, err := q.Claim(ctx, Holder{Who: opt.Who, Task: id})
	if err != nil {
		return Task{}, err
	}
	t, err := Lookup(ctx, q, id)
	switch {
	case err != nil:
	case t.Kind.whyNotResumable() != "":
		err = fmt.Errorf("task %s is of the kind %s, and cannot be resumed: %s", id, t.Kind, t.Kind.whyNotResumable())
	case t.Kind != KindReplay && t.Kind != KindPurge:
		err = fmt.Errorf("task %s is of the kind %q, which this version does not know, and cannot be resumed", id, t.Kind)
	case !t.Unfinished():
		err = fmt.Errorf("task %s is %s, and cannot be resumed", id, t.Status)
	case t.Change && opt.Change == nil:
		err = fmt.Errorf("task %s changes its messages, and no Change was given: resume it in the same way, or cancel it", id)
	case !t.Change && opt.Change != nil:
		err = fmt.Errorf("task %s does not change its messages, and a Change was given: resume it in the same way, or cancel it", id)
	default:
		err = t.checkOpenedWith(q.Info())
	}
	if err == nil {
		err = endPause(ctx, q, claim, &t)
	}
	if err != nil {
		return t, errors.Join(err, finish(ctx, claim.Release))
	}
	t.Status, t.Note, t.Ended = StatusRunning, "", time.Time{}
	return (&runner{q: q, claim: claim, task: t, report: opt.Report, change: opt.Change, newer: true}).run(ctx)
}

// endPause removes the request for a pause. If there is a request to cancel, made while another task had the DLQ, it cancels the
// task instead, and returns an error.
func endPause(ctx context.Context, q Queue, claim Claim, t *Task) error {
	r, err := claim.Requested(ctx, t.ID)
	if err != nil {
		return err
	}
	if r != RequestCancel {
		return q.Request(ctx, t.ID, RequestNone)
	}
	t.end(StatusCancelled, t.Note)
	return errors.Join(fmt.Errorf("task %s was cancelled, and cannot be resumed", t.ID), claim.Save(ctx, *t))
}

// Forecast describes what a replay would do.
type Forecast struct {
	// ReplayTo is the destination of the messages.
	ReplayTo string
	// Scanned is the number of messages that were read, Matched the number of those that match the
	// filter. Of the matching messages, Replay would be sent, Skip were
	// replayed too often already, and Refuse would be refused.
	Scanned, Matched, Replay, Skip, Refuse int64
	// Refusals are the reasons of the first 10 refusals.
	Refusals []string
	// Changed is the number of messages of Replay that ReplayOptions.Change would change, and Changes the first 10 of them.
	Changed int64
	Changes []Changed
	// About reports whether Scanned and Matched may be too high: they count offsets of Kafka, and not all of
	// those need have a message.
	About bool
}

// These bound Forecast.Refusals and Forecast.Changes.
const (
	maxRefusals = 10
	maxChanges  = 10
)

// DryRun reads the DLQ and returns what Replay would do, or why it would refuse the request. It
// changes nothing, and needs no claim, Who or Why.
func DryRun(ctx context.Context, q Queue, r ReplayOptions) (Forecast, error) {
	r = r.withDefaults()
	f := Forecast{ReplayTo: q.Info().ReplayTo}
	var ps check.Problems
	r.check(&ps)
	if err := errors.Join(ps.Err(), r.Filter.check()); err != nil {
		return f, err
	}
	scan, err := q.Scan(ctx, FromStart)
	if err != nil {
		return f, err
	}
	want := func(m *Message) bool { // only a message that is changed must be copied
		f.Scanned++
		return r.Filter.Match(m) && (f.count(m, outcomeOfReplay(r.MaxReplays, m), m.Mismatch) && r.Change != nil)
	}
	err = scanAll(ctx, scan, want, func(m *Message) bool {
		f.addChange(ctx, m, r.Change)
		return ctx.Err() == nil
	})
	return f, errors.Join(err, ctx.Err(), scan.Close())
}

// count counts a message that matches the filter, and reports whether it would be replayed.
func (f *Forecast) count(m *Message, o Outcome, why string) bool {
	f.Matched++
	switch o {
	case OutcomeReplayed:
		f.Replay++
	case OutcomeSkipped:
		f.Skip++
	default:
		f.refuse(m, why)
	}
	return o == OutcomeReplayed
}

func (f *Forecast) refuse(m *Message, why string) {
	f.Refuse++
	if len(f.Refusals) < maxRefusals {
		f.Refusals = append(f.Refusals, fmt.Sprintf("%s: %s", m.Position, why))
	}
}

// outcomeOfReplay returns the outcome that a replay chooses for a message that matches its filter.
func outcomeOfReplay(maxReplays int, m *Message) Outcome {
	switch {
	case m.Mismatch != "":
		return OutcomeRefused
	case m.State.Replays >= maxReplays:
		return OutcomeSkipped
	default:
		return OutcomeReplayed
	}
}
