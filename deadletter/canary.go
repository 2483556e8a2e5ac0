package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	// maxReplayedIDs bounds the ids by which the canary recognises messages that came back. When more were sent, every
	// replayed message that arrives in the DLQ counts, including those of other replays.
	maxReplayedIDs = 10_000
	// sentPerReturned is how many messages must have been sent for each that came back, after the last step of the canary.
	sentPerReturned = 10
	// lookPause is the pause between reads of the DLQ while a replay watches it.
	lookPause = 250 * time.Millisecond
)

// watch reads the messages that arrive in the DLQ while a replay runs, and judges its canary.
type watch struct {
	r     *runner
	scan  Scan            // of new messages; nil if reading hides messages, so that the whole DLQ must be read
	stage int             // index into the canary; at its end the rest is replayed
	done  int             // sent in this stage
	sent  map[string]int  // replay count of each sent message, by id
	came  map[string]bool // ids of messages that came back
	all   int64           // sent by this runner
	back  int64           // how many of those came back

	looked time.Time
	took   time.Duration // duration of the latest look
}

func newWatch(ctx context.Context, r *runner) (*watch, error) {
	w := &watch{r: r, sent: make(map[string]int), came: make(map[string]bool)}
	if c, ok := r.claim.(*driverClaim); ok && c.q.hides() {
		return w, nil
	}
	scan, err := r.claim.Scan(ctx, End)
	w.scan = scan
	return w, err
}

func (w *watch) close() error {
	if w.scan == nil {
		return nil
	}
	return w.scan.Close()
}

// left returns how many messages may still be sent in this stage.
func (w *watch) left() int {
	if w.stage >= len(w.r.task.Canary) {
		return w.r.task.Window
	}
	return w.r.task.Canary[w.stage] - w.done
}

// note counts a message that was sent, and remembers its id.
func (w *watch) note(m *Message) {
	w.all++
	if len(w.sent) < maxReplayedIDs {
		w.sent[m.ID] = m.State.Replays
	}
}

// checkReturned must be called after n messages were sent. At the end of a stage of the canary it watches the DLQ for the time
// Task.Watch. It returns an error if too many messages came back.
func (w *watch) checkReturned(ctx context.Context, n int, atEnd bool) error {
	if w.stage >= len(w.r.task.Canary) {
		// Read a slow DLQ less often.
		if !atEnd && time.Since(w.looked) < max(lookPause, 10*w.took) {
			return nil
		}
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.back*sentPerReturned > w.all {
			return w.stop()
		}
		return nil
	}
	w.done += n
	if !atEnd && w.left() > 0 || w.done == 0 {
		return nil
	}
	over := time.Now().Add(w.r.task.Watch)
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.back > 0 {
			return w.stop()
		}
		rest := time.Until(over)
		if rest <= 0 {
			break
		}
		if err := wait.For(w.r.stopRequests.callerCtx, min(rest, lookPause)); err != nil {
			return err
		}
		if err := w.r.stopRequests.check(ctx, &w.r.task); err != nil {
			return err
		}
	}
	w.stage, w.done = w.stage+1, 0
	return nil
}

// look counts the messages that came back since the last look.
func (w *watch) look(ctx context.Context) error {
	w.looked = time.Now()
	defer func() { w.took = time.Since(w.looked) }()
	if w.scan == nil {
		return w.lookAtAll(ctx)
	}
	return each(ctx, w.scan, func(m *Message) {
		if _, known := w.sent[m.ID]; m.State.Replays > 0 && (known || w.all > maxReplayedIDs) {
			w.cameBack()
		}
	})
}

func (w *watch) cameBack() {
	w.back++
	w.r.task.Counts.Returned++
}

// lookAtAll replaces look if reading hides messages, so that only one session may read at a time. It reads the whole
// DLQ. A sent message that is there with more replays has come back.
func (w *watch) lookAtAll(ctx context.Context) (err error) {
	if s, ok := w.r.scan.(*driverScan); ok {
		if a, ok := s.r.(driver.ArrivalCounter); ok {
			if n, err := a.CountArrivals(ctx); err != nil || n <= 0 {
				return err
			}
		}
	}
	if err := w.r.closeScan(); err != nil {
		return err
	}
	c, _ := w.r.claim.(*driverClaim)
	s, err := c.q.Connect(ctx) // a new session, because the claim's does not see new messages
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish(ctx, s.Close)) }()
	all, err := c.q.look(ctx, s, c.holder, Start, true)
	if err != nil {
		return err
	}
	err = each(ctx, all, func(m *Message) {
		if was, known := w.sent[m.ID]; known && m.State.Replays > was && !w.came[m.ID] {
			w.came[m.ID] = true
			w.cameBack()
		}
	})
	return errors.Join(err, all.Close())
}

func (w *watch) stop() error {
	return &ending{StatusStopped, fmt.Sprintf("%d of %d replayed messages came back to %s; see why, and resume or cancel", w.back, w.all, w.r.task.DLQ)}
}
