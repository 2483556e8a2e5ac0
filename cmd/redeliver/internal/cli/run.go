package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// grace is how long a task may take to pause when its process is told to end. It
// looks twice a second whether it should.
const grace = 10 * time.Second

// work is one task that this process runs.
type work struct {
	a       *app
	q       deadletter.Queue
	bar     *progress
	results *results // nil where nobody wants them
	task    atomic.Pointer[string]
}

// run runs a task with its progress and its results.
func (a *app) run(ctx context.Context, q deadletter.Queue, path string, do func(context.Context, deadletter.Report) (deadletter.Task, error)) (err error) {
	w := &work{a: a, q: q}
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
	gently, end := w.gently(ctx)
	t, err := do(gently, w.report())
	end()
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

// gently is a context for a task whose process is told to end when ctx ends. The
// task is asked to pause then, as from anywhere else: so it records what is on its
// way, and nothing is sent twice. Only where that takes too long it is broken off.
func (w *work) gently(ctx context.Context) (long context.Context, end func()) {
	long, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	over, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		defer breakOff()
		id := w.task.Load()
		if id == nil {
			return // nothing is on its way yet
		}
		w.a.sayf("pausing task %s; once more ends it at once", *id)
		ctx, cancel := context.WithTimeout(long, grace)
		defer cancel()
		if deadletter.Pause(ctx, w.q, *id) == nil {
			select {
			case <-over:
			case <-ctx.Done():
			}
		}
	})
	return long, func() {
		close(over)
		if !stop() {
			<-asked // it works on the queue, which is closed next
		}
		breakOff()
	}
}
