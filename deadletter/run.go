package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

const (
	// askEvery is how often a runner looks whether it is to pause.
	askEvery = 500 * time.Millisecond
	// saveEvery is how often a task that settles nothing records how far it is.
	saveEvery = 2 * time.Second
	// lastWords bounds the saving of a task whose context has ended.
	lastWords = 10 * time.Second
	// gatherMost bounds how many messages are looked at before a runner sees to
	// its orders and its progress, where the filter takes few.
	gatherMost = 10_000
	// gatherBytes bounds what a window holds in memory.
	gatherBytes = 32 << 20
)

// runner does one replay or purge, in one goroutine.
type runner struct {
	q       Queue
	claim   Claim
	task    Task
	report  Report
	resumed bool // by a second runner: the end of its scan is not the task's

	scan  Scan
	pace  pace
	watch *watch // nil without a canary
	asked time.Time
}

// end is why a task ends other than by its end.
type end struct {
	status Status
	note   string
}

func (e *end) Error() string { return string(e.status) + ": " + e.note }

// run does the task and records how it ended.
func (r *runner) run(ctx context.Context) (Task, error) {
	r.pace = pace{rate: r.task.Rate}
	err := r.begin(ctx)
	if err == nil {
		err = r.work(ctx)
	}
	if r.scan != nil {
		err = errors.Join(err, r.scan.Close())
	}
	if r.watch != nil {
		err = errors.Join(err, r.watch.close())
	}
	return r.finish(ctx, err)
}

// begin records the task, and only then looks at the DLQ.
func (r *runner) begin(ctx context.Context) (err error) {
	if err = r.save(ctx); err != nil {
		return err
	}
	r.task.Counts.Scanned, r.task.Counts.Matched = 0, 0
	if r.scan, err = r.claim.Scan(ctx, Start); err != nil {
		return err
	}
	if len(r.task.Canary) > 0 {
		r.watch, err = newWatch(ctx, r)
	}
	return err
}

// work goes through the DLQ, window by window.
func (r *runner) work(ctx context.Context) error {
	for atEnd := false; !atEnd; {
		if err := r.orders(ctx); err != nil {
			return err
		}
		var batch []*Message
		var marks []Settlement
		var err error
		batch, marks, atEnd, err = r.gather(ctx)
		if err != nil {
			return err
		}
		if err := r.settle(ctx, batch, marks); err != nil {
			return err
		}
		if r.watch != nil {
			if err := r.watch.after(ctx, len(batch), atEnd); err != nil {
				return err
			}
		}
	}
	return nil
}

// orders obeys what was asked of the task.
func (r *runner) orders(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if time.Since(r.asked) < askEvery {
		return nil
	}
	w, err := r.claim.Wanted(ctx, r.task.ID)
	if err != nil {
		return err
	}
	r.asked = time.Now()
	switch w {
	case BePaused:
		return &end{StatusPaused, "as asked"}
	case BeCancelled:
		return &end{StatusCancelled, "as asked"}
	default:
		return nil
	}
}

// gather reads on until a window is full, and says what is only to be marked.
func (r *runner) gather(ctx context.Context) (batch []*Message, marks []Settlement, atEnd bool, err error) {
	size := r.pace.most(r.task.Window)
	if r.watch != nil {
		size = min(size, r.watch.left())
	}
	bytes := 0
	for looked := 0; len(batch) < size && len(marks) < r.task.Window && looked < gatherMost && bytes < gatherBytes; looked++ {
		m, err := r.scan.Next(ctx)
		if errors.Is(err, io.EOF) {
			return batch, marks, true, nil
		}
		if errors.Is(err, ErrBehind) {
			if len(batch) == 0 { // nothing is to be settled, so it stays so
				r.task.Note = "not all could be seen: " + err.Error() + ", which the filter passes"
			}
			return batch, marks, len(batch) == 0, nil
		}
		if err != nil {
			return nil, nil, false, err
		}
		r.task.Counts.Scanned++
		if r.resumed && r.later(m) || !r.task.Filter.Match(m) {
			continue
		}
		r.task.Counts.Matched++
		o := Purged
		if r.task.Kind == KindReplay {
			o = choose(&r.task.Filter, r.task.MaxReplays, m)
		}
		switch {
		case o.Out():
			batch = append(batch, m)
			bytes += len(m.Body)
		case m.Mark != o:
			marks = append(marks, Settlement{Message: m, Outcome: o})
		}
	}
	return batch, marks, false, nil
}

// later tells what came into the DLQ after the task was made: by the clock of who
// wrote it there, and, for what was replayed, of who failed it again.
func (r *runner) later(m *Message) bool {
	made := r.task.Created
	return m.Time.After(made) || m.State.Replays > 0 && !m.State.LastFailed.Before(made)
}

// settle sends a window and then, only for what is confirmed, records it.
func (r *runner) settle(ctx context.Context, batch []*Message, done []Settlement) error {
	var failed error
	why := make(map[*Message]string)
	if r.task.Kind == KindReplay {
		if err := r.pace.wait(ctx, len(batch)); err != nil {
			return err
		}
		done, failed = r.send(ctx, batch, done, why)
	} else {
		for _, m := range batch {
			done = append(done, Settlement{Message: m, Outcome: Purged})
		}
	}
	if len(done) > 0 {
		// What is confirmed is to be recorded, whoever has lost his patience.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		t := r.task
		for _, s := range done {
			t.Counts.count(s.Outcome)
		}
		t.Updated = now()
		if err := r.claim.Settle(ctx, t, done); err != nil {
			return errors.Join(failed, err)
		}
		r.task = t
		r.tell(done, why)
	} else if time.Since(r.task.Updated) > saveEvery { // it scans, and finds nothing
		if err := r.save(ctx); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

// tell reports what is recorded.
func (r *runner) tell(done []Settlement, why map[*Message]string) {
	if r.report.Result != nil {
		for _, s := range done {
			reason := why[s.Message]
			if s.Outcome == Refused && reason == "" {
				reason = s.Message.Mismatch
			}
			r.report.Result(Result{ID: s.Message.ID, Position: s.Message.Position, Outcome: s.Outcome, Why: reason})
		}
	}
	if r.report.Progress != nil {
		r.report.Progress(r.task)
	}
}

// send replays a window. A message that the broker will never take is marked and
// does not stop the others; any other error ends the task.
func (r *runner) send(ctx context.Context, batch []*Message, done []Settlement, why map[*Message]string) ([]Settlement, error) {
	if len(batch) == 0 {
		return done, nil
	}
	var failed error
	for i, err := range r.claim.Send(ctx, batch) {
		s := Settlement{Message: batch[i], Outcome: Replayed}
		switch {
		case err == nil:
			if r.watch != nil {
				r.watch.sent(batch[i].ID)
			}
		case errors.Is(err, delayqueue.ErrRefused):
			s.Outcome, why[batch[i]] = Refused, err.Error()
			r.task.Note = fmt.Sprintf("%s was refused: %v", batch[i].Position, err)
		default:
			failed = fmt.Errorf("replaying %s of %s: %w", batch[i].Position, r.task.DLQ, err)
			continue
		}
		done = append(done, s)
	}
	return done, failed
}

func (r *runner) save(ctx context.Context) error {
	r.task.Updated = now()
	if err := r.claim.Save(ctx, r.task); err != nil {
		return err
	}
	r.tell(nil, nil)
	return nil
}

// finish records how the task ended and gives the DLQ up.
func (r *runner) finish(ctx context.Context, err error) (Task, error) {
	t := &r.task
	var e *end
	switch {
	case err == nil:
		t.Status = StatusDone
	case errors.As(err, &e):
		t.Status, t.Note, err = e.status, e.note, nil
	case errors.Is(err, ErrLost):
		t.Status, t.Note = StatusInterrupted, err.Error()
	case ctx.Err() != nil:
		t.Status, t.Note = StatusPaused, fmt.Sprintf("its runner was told to end: %v", context.Cause(ctx))
	default:
		t.Status, t.Note = StatusFailed, err.Error()
	}
	if t.Status == StatusDone || t.Status == StatusCancelled {
		t.Ended = now()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if !errors.Is(err, ErrLost) {
		err = errors.Join(err, r.save(last))
	}
	if released := r.claim.Release(last); err == nil {
		err = released
	}
	return *t, err
}
