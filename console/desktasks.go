package console

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/redeliver/redeliver/deadletter"
)

// queueTask is a task and its DLQ.
type queueTask struct {
	Key string
	deadletter.Task
	// Job is the task's progress in this process. It is nil if another process runs the task.
	Job *taskRun
}

// tasks returns the tasks of one DLQ or of all, the newest first. errs has the errors of the brokers that did not
// answer, by DLQ.
func (d *desk) tasks(ctx context.Context, who Actor, key string) (list []queueTask, errs map[string]error, err error) {
	queues := d.known()
	if key != "" {
		q, _, err := d.queue(who, key)
		if err != nil {
			return nil, nil, err
		}
		queues = []*openQueue{q}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	errs = make(map[string]error)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, q := range queues { // concurrently, so that a DLQ that does not answer delays no other
		here := who.on(q)
		if d.may(here, Look) != nil {
			continue
		}
		all.Go(func() {
			tasks, err := deadletter.History(ctx, q.q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[q.key] = err
			}
			for _, t := range tasks {
				list = append(list, d.work(here, q, t))
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(list, func(x, y queueTask) int { return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.ID, y.ID)) })
	return list, errs, nil
}

func (d *desk) task(ctx context.Context, who Actor, key, id string) (queueTask, error) {
	q, err := d.enter(&who, key, Record{Action: Look})
	if err != nil {
		return queueTask{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	t, err := deadletter.Lookup(ctx, q.q, id)
	if err != nil {
		return queueTask{}, err
	}
	return d.work(who, q, t), nil
}

// work returns a task as a user may see it. Its filter and its changes quote messages.
func (d *desk) work(who Actor, q *openQueue, t deadletter.Task) queueTask {
	w := queueTask{Key: q.key, Task: t, Job: d.jobs.view(t.ID)}
	if w.Job != nil && w.Job.Running {
		w.Task = w.Job.Task
	}
	w.Filter = d.filter(who, q.info, &w.Filter)
	w.Note = d.quotation(who, q.info, w.Note)
	w.Why = d.errorText(who, q.info, nil, w.Why)
	w.Diff = d.diff(who, q, w.Diff)
	if w.Job != nil { // view returned a copy
		w.Job.Task = w.Task
		w.Job.Err = d.quotation(who, q.info, w.Job.Err)
		for i := range w.Job.Results {
			r := &w.Job.Results[i]
			r.Why = d.quotation(who, q.info, r.Why)
		}
	}
	return w
}

// diff returns the changes of an edit as a user may see them. If a body may be hidden, its checksum is, too, because
// the checksum of a short body reveals it.
func (d *desk) diff(who Actor, q *openQueue, was *deadletter.Diff) *deadletter.Diff {
	if was == nil || who.Role >= Reader && d.cfg.Redact == nil {
		return was
	}
	shown := *was
	if shown.BodyBefore != shown.BodyAfter {
		shown.BodyBefore, shown.BodyAfter = hidden, hidden+", another one"
	}
	shown.Headers = slices.Clone(shown.Headers)
	for i := range shown.Headers {
		h := &shown.Headers[i]
		h.Before, h.After = d.values(who, q, h.Name, h.Before), d.values(who, q, h.Name, h.After)
		if who.Role < Reader {
			h.Name = hidden
		}
	}
	return &shown
}

func (d *desk) values(who Actor, q *openQueue, name string, values [][]byte) [][]byte {
	shown := make([][]byte, len(values))
	for i, v := range values {
		shown[i] = []byte(hidden)
		if who.Role >= Reader {
			shown[i], _ = d.redact(Part{Kind: PartHeader, Name: name, Value: v, DLQ: q.info})
		}
	}
	return shown
}
