package cli

import (
	"context"
	"sync/atomic"

	"github.com/redeliver/redeliver/deadletter"
)

// running is one task that this process runs.
type running struct {
	bar     *progress
	results *results // nil without --results
	task    atomic.Pointer[string]
}

// runTask runs a task with progress and results. When ctx ends, the task records what it has sent and is paused.
func (a *app) runTask(ctx context.Context, q deadletter.Queue, path string, expect int64, do func(context.Context, deadletter.Report) (deadletter.Task, error)) (err error) {
	w := &running{}
	if path != "" {
		if w.results, err = openResults(path); err != nil {
			return err
		}
	}
	total := int64(-1)
	if a.ErrTerminal {
		if n, _, err := q.Count(ctx); err == nil {
			total = n
		}
	}
	w.bar = a.newProgress(total)
	w.bar.do = expect
	announced := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(announced)
		if id := w.task.Load(); id != nil {
			a.sayf("pausing task %s; press Ctrl-C again to end it at once", *id)
		}
	})
	t, err := do(ctx, w.report())
	if !stop() {
		<-announced
	}
	w.bar.end()
	wrong := w.results.close()
	if w.task.Load() == nil { // refused: the DLQ is locked, or there is no such task
		return err
	}
	if err = a.printEnded(ctx, q, &t, err); err == nil && wrong != nil {
		err = failed(codePartly, "task %s is done, but --results is incomplete: %w", t.ID, wrong)
	}
	return err
}

// withResults calls do with a report that writes the results of its tasks to a file, if path is not empty.
func (a *app) withResults(path string, do func(deadletter.Report) error) (err error) {
	w := &running{bar: &progress{}}
	if path != "" {
		if w.results, err = openResults(path); err != nil {
			return err
		}
	}
	err = do(w.report())
	if wrong := w.results.close(); err == nil && wrong != nil {
		err = failed(codePartly, "--results is incomplete: %w", wrong)
	}
	return err
}

func (w *running) report() deadletter.Report {
	return deadletter.Report{
		Progress: func(t deadletter.Task) {
			w.task.Store(&t.ID)
			w.bar.task(&t)
		},
		Result: func(r deadletter.Result) { w.results.add(*w.task.Load(), r) },
	}
}
