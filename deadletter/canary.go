package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/internal/wait"
)

const (
	// maxSentIDs bounds the ids by which the canary recognises messages that came back. When more were sent, every
	// replayed message that arrives in the DLQ counts, including those of other replays.
	maxSentIDs = 10_000
	// sentPerReturned is how many messages must have been sent for each that came back, after the last step of the canary.
	sentPerReturned = 10
	// watchInterval is the interval at which a replay reads the DLQ to find messages that came back.
	watchInterval = 250 * time.Millisecond
)

// canaryWatch reads the messages that arrive in the DLQ while a replay runs, and stops the replay if too many came back.
type canaryWatch struct {
	r          *runner
	scan       Scan            // of new messages; nil if reading hides messages, so that the whole DLQ must be read
	step       int             // index into Task.Canary; after the last step the rest is replayed
	sentInStep int             // messages
	sent       int64           // messages, by this runner
	returned   int64           // how many of those came back
	replays    map[string]int  // replay count of each sent message, by id
	seen       map[string]bool // ids of messages that came back, if the whole DLQ is read

	readAt   time.Time     // when the DLQ was read last
	readTook time.Duration // how long that took
}

func newCanaryWatch(ctx context.Context, r *runner) (*canaryWatch, error) {
	w := &canaryWatch{r: r, replays: make(map[string]int), seen: make(map[string]bool)}
	if _, ok := r.claim.(Rescanner); ok && r.q.Info().ReadEffect != NoReadEffect {
		return w, nil
	}
	scan, err := r.claim.Scan(ctx, FromEnd)
	w.scan = scan
	return w, err
}

func (w *canaryWatch) close() error {
	if w.scan == nil {
		return nil
	}
	return w.scan.Close()
}

// maxBatch returns how many messages may still be sent in this step.
func (w *canaryWatch) maxBatch() int {
	if w.step >= len(w.r.task.Canary) {
		return w.r.task.Window
	}
	return w.r.task.Canary[w.step] - w.sentInStep
}

// addSent counts a message that was sent, and remembers its id.
func (w *canaryWatch) addSent(m *Message) {
	w.sent++
	if len(w.replays) < maxSentIDs {
		w.replays[m.ID] = m.State.Replays
	}
}

// checkReturned returns an error if too many messages came back. n messages were sent since the last call. At the end
// of a step, checkReturned watches the DLQ for Task.Watch.
func (w *canaryWatch) checkReturned(ctx context.Context, n int, atEnd bool) error {
	if w.step >= len(w.r.task.Canary) {
		return w.checkReturnedAfterSteps(ctx, atEnd)
	}
	w.sentInStep += n
	if !atEnd && w.maxBatch() > 0 || w.sentInStep == 0 {
		return nil
	}
	if err := w.watchStep(ctx); err != nil {
		return err
	}
	w.step, w.sentInStep = w.step+1, 0
	return nil
}

// checkReturnedAfterSteps is checkReturned after the last step of the canary. It reads a slow DLQ less often.
func (w *canaryWatch) checkReturnedAfterSteps(ctx context.Context, atEnd bool) error {
	if !atEnd && time.Since(w.readAt) < max(watchInterval, 10*w.readTook) {
		return nil
	}
	if err := w.countReturned(ctx); err != nil {
		return err
	}
	if w.returned*sentPerReturned > w.sent {
		return w.tooManyReturned()
	}
	return nil
}

// watchStep watches the DLQ for Task.Watch. It returns an error if a message came back, or if the task must stop.
func (w *canaryWatch) watchStep(ctx context.Context) error {
	end := time.Now().Add(w.r.task.Watch)
	for {
		if err := w.countReturned(ctx); err != nil {
			return err
		}
		if w.returned > 0 {
			return w.tooManyReturned()
		}
		rest := time.Until(end)
		if rest <= 0 {
			return nil
		}
		if err := wait.For(w.r.stopRequests.callerCtx, min(rest, watchInterval)); err != nil {
			return err
		}
		if err := w.r.stopRequests.check(ctx, &w.r.task); err != nil {
			return err
		}
	}
}

// countReturned counts the messages that came back since the last call.
func (w *canaryWatch) countReturned(ctx context.Context) error {
	w.readAt = time.Now()
	defer func() { w.readTook = time.Since(w.readAt) }()
	if w.scan == nil {
		return w.countReturnedInAll(ctx)
	}
	return each(ctx, w.scan, func(m *Message) {
		if _, known := w.replays[m.ID]; m.State.Replays > 0 && (known || w.sent > maxSentIDs) {
			w.addReturned()
		}
	})
}

func (w *canaryWatch) addReturned() {
	w.returned++
	w.r.task.Counts.Returned++
}

// countReturnedInAll is countReturned for a broker that hides messages while they are read, so that only one session
// may read. It reads the whole DLQ. A sent message that is there with more replays has come back.
func (w *canaryWatch) countReturnedInAll(ctx context.Context) (err error) {
	if s, ok := w.r.scan.(ArrivalCounter); ok {
		n, err := s.CountArrivals(ctx)
		if err == nil && n <= 0 || err != nil && !errors.Is(err, ErrNotReported) {
			return err
		}
	}
	if err := w.r.closeScan(); err != nil {
		return err
	}
	claim, _ := w.r.claim.(Rescanner)
	all, err := claim.Rescan(ctx)
	if err != nil {
		return err
	}
	err = each(ctx, all, func(m *Message) {
		if was, known := w.replays[m.ID]; known && m.State.Replays > was && !w.seen[m.ID] {
			w.seen[m.ID] = true
			w.addReturned()
		}
	})
	return errors.Join(err, all.Close())
}

func (w *canaryWatch) tooManyReturned() error {
	return &ending{StatusStopped, fmt.Sprintf("%d of %d replayed messages came back to %s; see why, and resume or cancel", w.returned, w.sent, w.r.task.DLQ)}
}
