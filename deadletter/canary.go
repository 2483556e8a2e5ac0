package deadletter

import (
	"context"
	"fmt"
	"time"
)

const (
	// remembered bounds the ids by which what came back is known. Beyond it
	// every replayed message that is dead again counts, whoever replayed it.
	remembered = 10_000
	// tolerance is how many of the replayed may come back, one in so many, once
	// the canary is over.
	tolerance = 10
	// lookEvery is how often the DLQ is looked at while it is watched.
	lookEvery = 250 * time.Millisecond
)

// watch sees what comes into the DLQ while a replay runs, and leads its canary.
type watch struct {
	r     *runner
	scan  Scan
	stage int // of the canary; past its end the rest is replayed
	done  int // sent in this stage
	ids   map[string]bool
	all   int64 // sent by this runner
	back  int64 // came back to it

	looked time.Time
	took   time.Duration // the latest look
}

func newWatch(ctx context.Context, r *runner) (*watch, error) {
	scan, err := r.claim.Scan(ctx, End)
	if err != nil {
		return nil, err
	}
	return &watch{r: r, scan: scan, ids: make(map[string]bool)}, nil
}

func (w *watch) close() error { return w.scan.Close() }

// left is how many messages the present stage may still send.
func (w *watch) left() int {
	if w.stage >= len(w.r.task.Canary) {
		return w.r.task.Window
	}
	return w.r.task.Canary[w.stage] - w.done
}

func (w *watch) sent(id string) {
	w.all++
	if len(w.ids) < remembered {
		w.ids[id] = true
	}
}

// after is called when n messages were sent. At the end of a stage it waits; it
// stops the task when too many came back.
func (w *watch) after(ctx context.Context, n int, atEnd bool) error {
	if w.stage >= len(w.r.task.Canary) {
		// Where a look takes long it is taken more rarely.
		if !atEnd && time.Since(w.looked) < max(lookEvery, 10*w.took) {
			return nil
		}
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.back*tolerance > w.all {
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
		if err := sleep(w.r.orders.told, min(rest, lookEvery)); err != nil {
			return err
		}
		if err := w.r.orders.obey(ctx, &w.r.task); err != nil {
			return err
		}
	}
	w.stage, w.done = w.stage+1, 0
	return nil
}

// look counts what came back since it was last looked.
func (w *watch) look(ctx context.Context) error {
	w.looked = time.Now()
	defer func() { w.took = time.Since(w.looked) }()
	return each(ctx, w.scan, func(m *Message) {
		if m.State.Replays > 0 && (w.ids[m.ID] || w.all > remembered) {
			w.back++
			w.r.task.Counts.CameBack++
		}
	})
}

func (w *watch) stop() error {
	return &end{StatusStopped, fmt.Sprintf("%d of %d replayed messages came back to %s; see why, and resume or cancel", w.back, w.all, w.r.task.DLQ)}
}
