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
	// Run is the task's progress in this process. It is nil if another process runs the task.
	Run *taskRun
}

// listTasks returns the tasks of one DLQ or of all, the newest first. errs has the errors of the brokers that did not
// answer, by DLQ.
func (svc *service) listTasks(ctx context.Context, who Actor, key string) (list []queueTask, errs map[string]error, err error) {
	queues := svc.allQueues()
	if key != "" {
		q, _, err := svc.findQueue(who, key)
		if err != nil {
			return nil, nil, err
		}
		queues = []*openQueue{q}
	}
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	errs = make(map[string]error)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, q := range queues { // concurrently, so that a DLQ that does not answer delays no other
		here := who.forQueue(q)
		if svc.checkRight(here, ActionLook) != nil {
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
				list = append(list, svc.redactTask(here, q, t))
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(list, func(x, y queueTask) int { return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.ID, y.ID)) })
	return list, errs, nil
}

func (svc *service) findTask(ctx context.Context, who Actor, key, id string) (queueTask, error) {
	q, err := svc.openFor(&who, key, Record{Action: ActionLook})
	if err != nil {
		return queueTask{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	t, err := deadletter.Lookup(ctx, q.q, id)
	if err != nil {
		return queueTask{}, err
	}
	return svc.redactTask(who, q, t), nil
}

// redactTask returns a task as a user may see it. Its filter and its changes quote messages.
func (svc *service) redactTask(who Actor, q *openQueue, t deadletter.Task) queueTask {
	w := queueTask{Key: q.key, Task: t, Run: svc.runs.get(t.ID)}
	if w.Run != nil && w.Run.Running {
		w.Task = w.Run.Task
	}
	w.Filter = svc.redactFilter(who, q.info, &w.Filter)
	w.Causes = slices.Clone(w.Causes)
	for i := range w.Causes {
		w.Causes[i].Error = svc.redactErrorText(who, q.info, nil, w.Causes[i].Error)
	}
	w.Note = svc.redactQuotation(who, q.info, w.Note)
	w.Why = svc.redactErrorText(who, q.info, nil, w.Why)
	w.Diff = svc.redactDiff(who, q, w.Diff)
	if w.Run != nil { // get returned a copy
		w.Run.Task = w.Task
		w.Run.Err = svc.redactQuotation(who, q.info, w.Run.Err)
		for i := range w.Run.Results {
			r := &w.Run.Results[i]
			r.Why = svc.redactQuotation(who, q.info, r.Why)
		}
	}
	return w
}

// redactDiff returns the changes of an edit as a user may see them. If a body may be hidden, its checksum is, too,
// because the checksum of a short body reveals it.
func (svc *service) redactDiff(who Actor, q *openQueue, was *deadletter.Diff) *deadletter.Diff {
	if was == nil || who.Role >= RoleReader && svc.cfg.Redact == nil {
		return was
	}
	shown := *was
	if shown.BodyBefore != shown.BodyAfter {
		shown.BodyBefore, shown.BodyAfter = hiddenText, hiddenText+", another one"
	}
	shown.Headers = slices.Clone(shown.Headers)
	for i := range shown.Headers {
		h := &shown.Headers[i]
		h.Before, h.After = svc.redactHeaderValues(who, q, h.Name, h.Before), svc.redactHeaderValues(who, q, h.Name, h.After)
		if who.Role < RoleReader {
			h.Name = hiddenText
		}
	}
	return &shown
}

func (svc *service) redactHeaderValues(who Actor, q *openQueue, name string, values [][]byte) [][]byte {
	shown := make([][]byte, len(values))
	for i, v := range values {
		shown[i] = []byte(hiddenText)
		if who.Role >= RoleReader {
			shown[i], _ = svc.redact(Part{Kind: PartHeader, Name: name, Value: v, DLQ: q.info})
		}
	}
	return shown
}
