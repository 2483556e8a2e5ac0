package console

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/redeliver/redeliver/deadletter"
)

// Work is a task, and where it is.
type Work struct {
	Key string
	deadletter.Task
	// Job is what this process knows of it; nil when another one runs it.
	Job *Job
}

// tasks are those of one DLQ, or of all, the newest first. What a broker did not
// say stands in the errors, by DLQ.
func (d *desk) tasks(ctx context.Context, who Actor, key string) (list []Work, errs map[string]error, err error) {
	if err := d.may(who, Look); err != nil {
		return nil, nil, err
	}
	queues := d.queues
	if key != "" {
		q, err := d.queue(key)
		if err != nil {
			return nil, nil, err
		}
		queues = []*queue{q}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	errs = make(map[string]error)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, q := range queues { // at once: one that does not answer holds up no other
		all.Go(func() {
			tasks, err := deadletter.History(ctx, q.q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[q.key] = err
			}
			for _, t := range tasks {
				list = append(list, d.work(who, q, t))
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(list, func(x, y Work) int { return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.ID, y.ID)) })
	return list, errs, nil
}

func (d *desk) task(ctx context.Context, who Actor, key, id string) (Work, error) {
	q, err := d.enter(who, key, Record{Action: Look})
	if err != nil {
		return Work{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	t, err := deadletter.Lookup(ctx, q.q, id)
	if err != nil {
		return Work{}, err
	}
	return d.work(who, q, t), nil
}

// work is a task as somebody may see it: what it was asked for and what it changed
// quotes messages.
func (d *desk) work(who Actor, q *queue, t deadletter.Task) Work {
	w := Work{Key: q.key, Task: t, Job: d.jobs.view(t.ID)}
	if w.Job != nil && w.Job.Running {
		w.Task = w.Job.Task
	}
	if who.Role < Reader {
		if within(&w.Filter) {
			w.Filter.Key, w.Filter.Headers, w.Filter.ErrorText = nil, nil, hidden
		}
		w.Note = deadletter.Normalise(w.Note)
		if w.Job != nil { // a copy, as view made it
			w.Job.Err = deadletter.Normalise(w.Job.Err)
			for i := range w.Job.Results {
				w.Job.Results[i].Why = deadletter.Normalise(w.Job.Results[i].Why)
			}
		}
	}
	if w.Diff != nil && (who.Role < Reader || d.cfg.Redact != nil) {
		diff := *w.Diff
		diff.Headers = slices.Clone(diff.Headers)
		for i := range diff.Headers {
			h := &diff.Headers[i]
			h.Before, h.After = d.values(who, q, h.Name, h.Before), d.values(who, q, h.Name, h.After)
		}
		w.Diff = &diff
	}
	return w
}

func (d *desk) values(who Actor, q *queue, name string, values [][]byte) [][]byte {
	shown := make([][]byte, len(values))
	for i, v := range values {
		shown[i] = []byte(hidden)
		if who.Role >= Reader {
			shown[i], _ = d.redact(Part{Kind: PartHeader, Name: name, Value: v, DLQ: q.info})
		}
	}
	return shown
}
