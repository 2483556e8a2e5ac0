package cli

import (
	"context"
	"sync/atomic"

	"github.com/redeliver/redeliver/deadletter"
)

// work is one task that this process runs.
type work struct {
	a       *app
	bar     *progress
	results *results // nil where nobody wants them
	task    atomic.Pointer[string]
}

// run runs a task with its progress and its results. When ctx ends the task records
// what is on its way, and is paused.
func (a *app) run(ctx context.Context, q deadletter.Queue, path string, do func(context.Context, deadletter.Report) (deadletter.Task, error)) (err error) {
	w := &work{a: a}
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
	w.bar = a.newProgress("beginning", total)
	said := make(chan struct{})
	hush := context.AfterFunc(ctx, func() {
		defer close(said)
		if id := w.task.Load(); id != nil {
			a.sayf("pausing task %s; once more ends it at once", *id)
		}
	})
	t, err := do(ctx, w.report())
	if !hush() {
		<-said
	}
	w.bar.end()
	wrong := w.results.close()
	if w.task.Load() == nil { // it was refused: another has the DLQ, there is no such task
		return err
	}
	if err = a.ended(ctx, q, &t, err); err == nil && wrong != nil {
		err = failed(codePartly, "task %s is done, and --results is not complete: %w", t.ID, wrong)
	}
	return err
}

func (w *work) report() deadletter.Report {
	return deadletter.Report{
		Progress: func(t deadletter.Task) {
			w.task.Store(&t.ID)
			w.bar.task(&t)
		},
		Result: func(r deadletter.Result) { w.results.add(*w.task.Load(), r) },
	}
}
