package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redeliver/redeliver"
)

// Defaults and bounds of [Replay].
const (
	DefaultMaxReplays = 3
	DefaultWindow     = 500
	DefaultWatch      = 30 * time.Second

	maxWindow = 10_000
)

// Replay is the request of a replay. Required are Who and Why.
type Replay struct {
	// The user's name, for the history.
	Who string
	// Why, for those who read the history.
	Why string
	// Filter says what is replayed. Default: all that lies there now.
	Filter Filter
	// Rate bounds the messages sent in a second. Default 0, no bound.
	Rate float64
	// Canary are the sizes of the steps in which the replay begins: 1, 10, 100.
	// After each the DLQ is watched, and the task stops by itself when one of its
	// messages came back. After the last step it goes on with the rest, and stops
	// when more than one in ten comes back. Default: none.
	Canary []int
	// Watch is how long the DLQ is watched after each step of the canary. It misses messages that come back
	// later: choose it longer than the retries of the policy take. Default 30 s.
	Watch time.Duration
	// Window is how many messages may be sent and not yet settled: as many
	// duplicates a crash may leave. Default 500, at most 10,000.
	Window int
	// MaxReplays is how often a message may be replayed; one that was is marked
	// as quarantined. Default 3. Filter.Quarantined replays those all the same.
	MaxReplays int
	// Report is called with the progress. Optional.
	Report Report
}

func (r Replay) withDefaults() Replay {
	r.Watch = cmp.Or(r.Watch, DefaultWatch)
	r.Window = cmp.Or(r.Window, DefaultWindow)
	r.MaxReplays = cmp.Or(r.MaxReplays, DefaultMaxReplays)
	return r
}

// validate returns all problems at once.
func (r Replay) validate() error {
	var ps redeliver.Problems
	signed(&ps, r.Who, r.Why)
	r.check(&ps)
	return errors.Join(ps.Err(), r.Filter.check())
}

// check is validate but for the signature, which a dry run need not have, and the
// filter.
func (r Replay) check(ps *redeliver.Problems) {
	if r.Rate < 0 || math.IsNaN(r.Rate) || math.IsInf(r.Rate, 0) {
		ps.Add("Rate", r.Rate, "must be a positive number, or 0 for no bound")
	}
	if r.Window < 1 || r.Window > maxWindow {
		ps.Add("Window", r.Window, fmt.Sprintf("must be from 1 to %d, or 0 for the default", maxWindow))
	}
	if r.MaxReplays < 1 {
		ps.Add("MaxReplays", r.MaxReplays, "must be at least 1, or 0 for the default")
	}
	if r.Watch < 0 {
		ps.Add("Watch", r.Watch, "must be positive, or 0 for the default")
	}
	for i, n := range r.Canary {
		if n < 1 {
			ps.Add(fmt.Sprintf("Canary[%d]", i), n, "must be at least 1")
		}
	}
}

// signed refuses work that nobody has signed.
func signed(ps *redeliver.Problems, who, why string) {
	if who == "" {
		ps.Add("Who", `""`, "it is required: the history says who did it")
	}
	if why == "" {
		ps.Add("Why", `""`, "it is required: the history says why")
	}
}

// Run makes a replay of all that lies in the DLQ now and that the filter takes, and
// runs it to its end: done, paused, cancelled, stopped by its canary, or failed. The
// task says which, and is recorded before the first message is sent. An error is
// returned beside it when it did not end by itself: ctx ended, the broker did not
// answer, the claim was lost; [Resume] goes on. When ctx ends, the messages that are on
// their way are confirmed and recorded first, if that takes no longer than 10 s.
func Run(ctx context.Context, q Queue, r Replay) (Task, error) {
	r = r.withDefaults()
	if err := r.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindReplay, r.Who, r.Why)
	t.Filter, t.Rate, t.Canary, t.Watch, t.Window, t.MaxReplays = r.Filter, r.Rate, r.Canary, r.Watch, r.Window, r.MaxReplays
	claim, err := q.Claim(ctx, Holder{Who: r.Who, Task: t.ID})
	if err != nil {
		return Task{}, err
	}
	return (&runner{q: q, claim: claim, task: t, report: r.Report}).run(ctx)
}

// Resume goes on with a replay, a purge or a quarantine that was paused or interrupted,
// that failed or stopped; see [Task.Resumable]. It touches only what was dead when the task
// was made, and begins with the canary again. It is refused while another runner has
// the DLQ, and where that was opened with another Back or ReadBy than the task was made with.
func Resume(ctx context.Context, q Queue, id, who string, report Report) (Task, error) {
	if who == "" {
		return Task{}, errors.New("resuming a task: who is required")
	}
	claim, err := q.Claim(ctx, Holder{Who: who, Task: id})
	if err != nil {
		return Task{}, err
	}
	t, err := Lookup(ctx, q, id)
	switch {
	case err != nil:
	case t.Kind.fixed() != "":
		err = fmt.Errorf("task %s is of the kind %s, and cannot be resumed: %s", id, t.Kind, t.Kind.fixed())
	case t.Kind != KindReplay && t.Kind != KindPurge && t.Kind != KindQuarantine:
		err = fmt.Errorf("task %s is of the kind %q, which this version does not know, and cannot be resumed", id, t.Kind)
	case !t.Open():
		err = fmt.Errorf("task %s is %s, and cannot be resumed", id, t.Status)
	default:
		err = t.sameWay(q.Info())
	}
	if err == nil {
		err = endPause(ctx, q, claim, &t)
	}
	if err != nil {
		return t, errors.Join(err, release(ctx, claim))
	}
	t.Status, t.Note, t.Ended = StatusRunning, "", time.Time{}
	return (&runner{q: q, claim: claim, task: t, report: report, resumed: true}).run(ctx)
}

// endPause ends a pause that was asked for. A task that was cancelled while nobody ran it, and another had the DLQ,
// stays cancelled.
func endPause(ctx context.Context, q Queue, claim Claim, t *Task) error {
	w, err := claim.Wanted(ctx, t.ID)
	if err != nil {
		return err
	}
	if w != BeCancelled {
		return q.Want(ctx, t.ID, GoOn)
	}
	t.Status, t.Updated = StatusCancelled, now()
	t.Ended = t.Updated
	return errors.Join(fmt.Errorf("task %s was cancelled, and cannot be resumed", t.ID), claim.Save(ctx, *t))
}

// Forecast is what a replay would do.
type Forecast struct {
	// Back is where the messages would be sent.
	Back string
	// Scanned were looked at, Matched are those that the filter takes. Of those
	// Replay would be sent, Quarantine be marked because they were replayed too
	// often, and Refuse because they name another group or origin.
	Scanned, Matched, Replay, Quarantine, Refuse int64
	// Refusals say, for the first few, why.
	Refusals []string
}

// maxRefusals bounds Forecast.Refusals.
const maxRefusals = 10

// DryRun looks at the DLQ and says what Run would do, or why Run would refuse what it
// is asked. It changes nothing, needs no claim, and nobody need have signed it.
func DryRun(ctx context.Context, q Queue, r Replay) (Forecast, error) {
	r = r.withDefaults()
	f := Forecast{Back: q.Info().Back}
	var ps redeliver.Problems
	r.check(&ps)
	if err := errors.Join(ps.Err(), r.Filter.check()); err != nil {
		return f, err
	}
	scan, err := q.Scan(ctx, Start)
	if err != nil {
		return f, err
	}
	err = each(ctx, scan, func(m *Message) {
		f.Scanned++
		if !r.Filter.Match(m) {
			return
		}
		f.Matched++
		switch choose(&r.Filter, r.MaxReplays, m) {
		case Replayed:
			f.Replay++
		case Quarantined:
			f.Quarantine++
		case Refused:
			f.Refuse++
			if len(f.Refusals) < maxRefusals {
				f.Refusals = append(f.Refusals, fmt.Sprintf("%s: %s", m.Position, m.Mismatch))
			}
		default:
		}
	})
	return f, errors.Join(err, scan.Close())
}

// choose says what a replay makes of a message that its filter takes.
func choose(f *Filter, limit int, m *Message) Outcome {
	switch {
	case m.Mismatch != "":
		return Refused
	case f.Quarantined:
		return Replayed
	case m.Mark == Quarantined || m.State.Replays >= limit:
		return Quarantined
	default:
		return Replayed
	}
}
