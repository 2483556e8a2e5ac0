package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	// saveInterval is how often a task that settles nothing records its progress.
	saveInterval = 2 * time.Second
	// maxGather bounds the messages that a runner reads for a window. When few messages match the filter, it checks for
	// requests and records its progress after that many, and then reads on.
	maxGather = 10_000
	// maxGatherBytes bounds the size of the messages of a window.
	maxGatherBytes = 32 << 20
	// maxGatherTime bounds the time in which a Change is called for a window: the broker does not hold messages forever.
	maxGatherTime = 10 * time.Second
)

// copyOf is what is sent for a message that a Change has accepted.
type copyOf struct {
	sent    *Message
	changed bool
}

// runner runs one replay or purge, in one goroutine. It reads a window of messages (gather), sends those to replay
// (send), and then records their outcomes and removes them from the DLQ (record), until the scan is at its end.
type runner struct {
	q       Queue
	claim   Claim
	task    Task
	report  Report
	change  Change    // nil if there is none
	newer   bool      // the scan may return messages that arrived after the task was created
	counted time.Time // when the messages were counted for Expect; zero without Expect

	settling settlingSet         // messages that an earlier runner has counted
	stayed   settlingSet         // messages that this runner has counted and left in the DLQ
	copies   map[*Message]copyOf // of the present window, if there is a Change

	located      Located // the messages of a purge, if they need not be read
	scan         Scan
	opened       time.Time // when scan was opened
	pace         pace
	stopRequests stopRequests
	watch        *canaryWatch // nil if there is none
}

// start claims the DLQ for a new task, and runs the task.
func (r *runner) start(ctx context.Context) (Task, error) {
	var err error
	if r.claim, err = r.q.Claim(ctx, Holder{Who: r.task.Who, Task: r.task.ID}); err != nil {
		return Task{}, err
	}
	if r.task.Expect > 0 {
		r.counted = time.Now()
		if err := r.checkExpected(ctx); err != nil {
			return Task{}, errors.Join(err, finish(ctx, r.claim.Release))
		}
	}
	return r.run(ctx)
}

// checkExpected returns ErrTooMany if more messages match than Expect.
func (r *runner) checkExpected(ctx context.Context) error {
	if err := r.openScan(ctx); err != nil {
		return err
	}
	var n int64
	err := scanAll(ctx, r.scan, r.task.Filter.Match, func(*Message) bool { n++; return n <= r.task.Expect })
	if err == nil && n > r.task.Expect {
		err = ErrTooMany
	}
	return errors.Join(err, r.closeScan())
}

// run runs the task and records how it ended. When ctx ends, run stops before the next message, or in a wait. Calls to the
// broker use a context that ends later.
func (r *runner) run(ctx context.Context) (Task, error) {
	r.pace, r.stopRequests = pace{rate: r.task.Rate}, stopRequests{callerCtx: ctx, claim: r.claim}
	r.settling, r.stayed = settlingOf(r.task.Settling), make(settlingSet)
	long, end := wait.Longer(ctx, maxFinish)
	defer end()
	err := r.begin(long)
	if err == nil {
		err = r.work(long)
	}
	if r.scan != nil {
		err = errors.Join(err, r.scan.Close())
	}
	if r.watch != nil {
		err = errors.Join(err, r.watch.close())
	}
	err = conclude(ctx, r.claim, &r.task, r.report, err)
	return r.task, err
}

// begin records the task, and then opens the scan.
func (r *runner) begin(ctx context.Context) (err error) {
	if err = r.save(ctx); err != nil {
		return err
	}
	c := &r.task.Counts
	c.Scanned, c.Matched, c.Skipped, c.Refused = 0, 0, 0, 0 // this runner finds these messages again
	if err := r.openScan(ctx); err != nil {
		return err
	}
	if len(r.task.Canary) > 0 {
		r.watch, err = newCanaryWatch(ctx, r)
	}
	return err
}

// openScan opens a scan, if none is open.
func (r *runner) openScan(ctx context.Context) error {
	if r.scan != nil {
		return nil
	}
	if err := r.locate(ctx); err != nil {
		return err
	}
	if r.located.Messages != nil { // the same messages as before: none that arrived later
		r.scan, r.opened = newLocatedScan(r.located.Messages), time.Now()
		return nil
	}
	scan, err := r.claim.Scan(ctx, FromStart)
	if err == nil {
		r.scan, r.opened = scan, time.Now()
	}
	return err
}

// locate finds the messages of a purge without reading them, if that is possible. If the scan may return later messages,
// only their positions can exclude them.
func (r *runner) locate(ctx context.Context) (err error) {
	if r.task.Kind != KindPurge || r.located.Messages != nil || r.newer && len(r.task.Filter.Positions) == 0 {
		return nil
	}
	r.located, err = locate(ctx, r.claim, &r.task.Filter)
	return err
}

// closeScan releases messages that were only read. The next scan reads them again.
func (r *runner) closeScan() error {
	if r.scan == nil {
		return nil
	}
	err := r.scan.Close()
	r.scan, r.newer = nil, true
	return err
}

// closeOldScan closes the scan if the broker would soon take back its messages, see Info.MaxHold.
func (r *runner) closeOldScan() error {
	if hold := r.q.Info().MaxHold; hold == 0 || time.Since(r.opened) <= hold/2 {
		return nil
	}
	return r.closeScan()
}

// work processes the DLQ, window by window.
func (r *runner) work(ctx context.Context) error {
	for {
		if err := r.stopRequests.check(ctx, &r.task); err != nil {
			return err
		}
		if err := errors.Join(r.closeOldScan(), r.openScan(ctx)); err != nil {
			return err
		}
		batch, stay, atEnd, err := r.gather(ctx)
		if err != nil {
			return err
		}
		if err := r.settle(ctx, batch, stay); err != nil {
			return err
		}
		if r.watch != nil {
			if err := r.watch.checkReturned(ctx, len(batch), atEnd); err != nil {
				return err
			}
		}
		if atEnd {
			return nil
		}
	}
}

// gather reads until a window is full. batch has the messages that leave the DLQ, stay those that remain.
func (r *runner) gather(ctx context.Context) (batch []*Message, stay []Settlement, atEnd bool, err error) {
	size := r.pace.maxBatch(r.task.Window)
	if r.watch != nil {
		size = min(size, r.watch.maxBatch())
	}
	bytes, counted, began := 0, 0, time.Now()
	r.copies = nil
	want := func(m *Message) bool {
		return !r.isLater(m) && r.task.Filter.Match(m) && !r.stayed[settlingName(m)]
	}
	for read := 0; len(batch) < size && len(stay) < r.task.Window && read < maxGather && bytes < maxGatherBytes; read++ {
		if err := r.stopRequests.callerCtx.Err(); err != nil {
			return nil, nil, false, err
		}
		if r.task.Expect > 0 && r.task.Counts.Purged+int64(len(batch)-counted) >= r.task.Expect {
			return batch, stay, true, nil // never more than expected, even if the clocks are wrong
		}
		m, err := r.scan.Next(ctx, want)
		switch {
		case errors.Is(err, io.EOF):
			return batch, stay, true, nil
		case errors.Is(err, ErrBlocked) && len(batch) > 0:
			return batch, stay, false, nil // when they are settled, the scan can continue
		case errors.Is(err, ErrBlocked): // the broker shows only messages that stay
			r.task.Note = "not all messages could be read: " + err.Error() + ", and the task leaves those in the DLQ"
			return nil, stay, true, nil
		case err != nil:
			return nil, nil, false, err
		}
		r.task.Counts.Scanned++
		if m == nil {
			continue
		}
		r.task.Counts.Matched++
		r.task.addCause(m)
		o, why := r.outcome(m), ""
		if o == OutcomeReplayed && r.change != nil {
			o, why = r.changeCopy(m)
			if err := r.stopRequests.callerCtx.Err(); err != nil {
				return nil, nil, false, err // perhaps the change failed because of it
			}
		}
		switch {
		case o.LeavesDLQ():
			batch = append(batch, m)
			bytes += sizeOf(m)
			if c := r.copies[m].sent; c != nil {
				bytes += sizeOf(c)
			}
			if r.settling[settlingName(m)] {
				counted++
			}
		default:
			stay = append(stay, Settlement{Message: m, Outcome: o, why: why})
			bytes += sizeOf(m)
		}
		if r.change != nil && time.Since(began) > maxGatherTime {
			break
		}
	}
	return batch, stay, false, nil
}

// changeCopy makes the copy of a message that is sent, and returns the outcome, with a reason if the message stays.
func (r *runner) changeCopy(m *Message) (o Outcome, why string) {
	copied, changed, err := r.change.apply(r.stopRequests.callerCtx, m)
	if err != nil {
		return OutcomeRefused, limits.CutMiddle(err.Error(), maxWhy)
	}
	if r.copies == nil {
		r.copies = make(map[*Message]copyOf)
	}
	r.copies[m] = copyOf{copied, changed}
	return OutcomeReplayed, ""
}

// sent returns what is sent for the messages of a window.
func (r *runner) sent(batch []*Message) []*Message {
	if r.change == nil {
		return batch
	}
	all := make([]*Message, len(batch))
	for i, m := range batch {
		all[i] = r.copies[m].sent
	}
	return all
}

// outcome returns the outcome of a message that matches the filter.
func (r *runner) outcome(m *Message) Outcome {
	if r.task.Kind == KindReplay {
		return outcomeOfReplay(r.task.MaxReplays, m)
	}
	return OutcomePurged
}

// isLater reports whether a message arrived after the messages were counted for Expect or, without a count, after the task was
// created, if the scan may return such messages. The task must not settle such a message. Its time is by the clock of its writer
// or, for a replayed message, of the consumer that failed it again. A message without a time is not later.
func (r *runner) isLater(m *Message) bool {
	switch made := r.task.Created; {
	case !r.counted.IsZero():
		return m.Time.After(r.counted)
	case r.newer:
		return m.Time.After(made) || m.State.Replays > 0 && !m.State.LastFailed.Before(made)
	default:
		return false
	}
}

// settle sends the batch of a window, and then records the outcomes.
func (r *runner) settle(ctx context.Context, batch []*Message, stay []Settlement) error {
	var out []Settlement
	var failed error
	if r.task.Kind == KindReplay {
		check := func() error { return r.stopRequests.check(ctx, &r.task) }
		if err := r.pace.wait(r.stopRequests.callerCtx, len(batch), check); err != nil {
			return err
		}
		out, stay, failed = r.send(ctx, batch, stay)
	} else {
		for _, m := range batch {
			out = append(out, Settlement{Message: m, Outcome: OutcomePurged})
		}
	}
	if len(out)+len(stay) > 0 {
		ctx, cancel := recordContext(ctx)
		defer cancel()
		if err := r.record(ctx, append(out, stay...)); err != nil {
			return errors.Join(failed, err)
		}
	} else if time.Since(r.task.Updated) > saveInterval { // no message has matched for a while
		if err := r.save(ctx); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

// record settles messages and saves the task that counts them. Either all of them leave the DLQ or none. If there is no
// room for the names of all that leave, record settles them in parts.
func (r *runner) record(ctx context.Context, done []Settlement) error {
	if len(done) == 0 {
		return nil
	}
	t := r.task
	for _, s := range done {
		if !r.settling[settlingName(s.Message)] {
			t.Counts.count(s.Outcome)
			if s.changed {
				t.Counts.Changed++
			}
		}
	}
	t.Updated, t.Settling = now(), r.settling.bytes(done)
	err := r.claim.Settle(ctx, t, done)
	if half := len(done) / 2; errors.Is(err, ErrStateFull) && half > 0 {
		if err := r.record(ctx, done[:half]); err != nil {
			return err
		}
		return r.record(ctx, done[half:])
	}
	if err != nil {
		if r.isRecorded(ctx, &t) { // the messages are counted, although they may not be removed
			r.task = t
		}
		return err
	}
	for _, s := range done {
		name := settlingName(s.Message)
		delete(r.settling, name)
		if !s.Outcome.LeavesDLQ() {
			r.stayed[name] = true
		}
	}
	t.Settling = r.settling.bytes(nil)
	r.task = t
	r.reportResults(done)
	return nil
}

// isRecorded reports whether the latest record of the task on the broker is t.
func (r *runner) isRecorded(ctx context.Context, t *Task) bool {
	all, err := r.q.Tasks(ctx)
	return err == nil && slices.ContainsFunc(all, func(was Task) bool {
		return was.ID == t.ID && was.Updated.Equal(t.Updated) && bytes.Equal(was.Settling, t.Settling)
	})
}

// reportResults reports outcomes and progress.
func (r *runner) reportResults(done []Settlement) {
	if r.report.Result != nil {
		for _, s := range done {
			why := s.why
			if s.Outcome == OutcomeRefused {
				why = cmp.Or(why, s.Message.Mismatch)
			}
			r.report.Result(Result{ID: s.Message.ID, Position: s.Message.Position, Outcome: s.Outcome, Why: why})
		}
	}
	if r.report.Progress != nil {
		r.report.Progress(r.task)
	}
}

// send replays a window. out has the messages that are confirmed. left has those of stay, and the messages
// that the broker will never accept. failed is any other error, which ends the task.
func (r *runner) send(ctx context.Context, batch []*Message, stay []Settlement) (out, left []Settlement, failed error) {
	if len(batch) == 0 {
		return nil, stay, nil
	}
	out = make([]Settlement, 0, len(batch))
	for i, err := range r.claim.Send(ctx, r.sent(batch)) {
		m := batch[i]
		switch {
		case err == nil:
			if r.watch != nil {
				r.watch.addSent(m)
			}
			out = append(out, Settlement{Message: m, Outcome: OutcomeReplayed, changed: r.copies[m].changed})
		case errors.Is(err, driver.ErrRefused):
			r.task.Note = fmt.Sprintf("the message at %s was refused: %v", m.Position, err)
			stay = append(stay, Settlement{Message: m, Outcome: OutcomeRefused, why: err.Error()})
		default:
			failed = fmt.Errorf("replaying the message at %s of %s to %s: %w", m.Position, r.task.DLQ, r.q.Info().ReplayTo, err)
		}
	}
	return out, stay, failed
}

func (r *runner) save(ctx context.Context) error {
	r.task.Updated = now()
	if err := r.claim.Save(ctx, r.task); err != nil {
		return err
	}
	r.reportResults(nil)
	return nil
}
