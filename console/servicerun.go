package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// maxTaskStart is how long the start of a task waits for the task's id.
	maxTaskStart = 20 * time.Second
	// maxRuns bounds the tasks of this process that are kept, maxResults the results that are kept of each.
	maxRuns    = 50
	maxResults = 100
)

// taskRun is a task that this process runs or ran.
type taskRun struct {
	Task    deadletter.Task
	Expect  int64 // number announced to the user
	Running bool
	Err     string
	Began   time.Time
	Results []deadletter.Result // the latest ones
}

// taskRuns are the tasks of this process, the oldest first.
type taskRuns struct {
	mu   sync.Mutex
	list []*taskRun
}

func (r *taskRuns) add(run *taskRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == maxRuns {
		r.list = r.list[1:]
	}
	r.list = append(r.list, run)
}

func (r *taskRuns) update(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// get returns a copy of a task's state, or nil.
func (r *taskRuns) get(id string) *taskRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range slices.Backward(r.list) {
		if run.Task.ID == id {
			seen := *run
			seen.Results = slices.Clone(run.Results)
			slices.Reverse(seen.Results) // the latest first
			return &seen
		}
	}
	return nil
}

// running returns the number of tasks of these DLQs that have not ended.
func (r *taskRuns) running(of []overview) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.list {
		if run.Running && slices.ContainsFunc(of, func(o overview) bool { return o.Info.DLQ == run.Task.DLQ }) {
			n++
		}
	}
	return n
}

// forecast counts the messages that an action would affect.
func (svc *service) forecast(ctx context.Context, who Actor, key string, a Action, r deadletter.ReplayOptions) (f deadletter.Forecast, timedOut bool, err error) {
	if err := svc.requireRight(who, key, a); err != nil {
		return f, false, err
	}
	rec := Record{Action: ActionList}
	if searchesContent(&r.Filter) { // the count reveals whether there is such a message
		rec = Record{Action: ActionSearch, Filter: &r.Filter}
	}
	q, err := svc.openFor(&who, key, rec)
	if err != nil {
		return f, false, err
	}
	ctx, release, err := svc.acquireRead(ctx)
	if err != nil {
		return f, false, err
	}
	defer release()
	f, err = deadletter.DryRun(ctx, q.q, r)
	for i, why := range f.Refusals {
		f.Refusals[i] = svc.redactQuotation(who, q.info, why)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return f, true, nil
	}
	return f, false, err
}

// startReplay starts a replay and returns its id.
func (svc *service) startReplay(ctx context.Context, who Actor, key string, r deadletter.ReplayOptions, expect int64) (string, error) {
	rec := Record{Action: ActionReplay, Filter: &r.Filter, Why: r.Why}
	return svc.startTask(ctx, who, key, rec, expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		r.Who, r.Report = historyName(who), report
		return deadletter.Replay(ctx, q, r)
	})
}

// resumeTask continues a task in this process.
func (svc *service) resumeTask(ctx context.Context, who Actor, key, id string) error {
	var expect int64
	if was := svc.runs.get(id); was != nil {
		expect = was.Expect
	}
	rec := Record{Action: ActionResume, Task: id}
	_, err := svc.startTask(ctx, who, key, rec, expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		return deadletter.Resume(ctx, q, id, deadletter.ResumeOptions{Who: historyName(who), Report: report})
	})
	return err
}

// startPurge permanently deletes messages.
func (svc *service) startPurge(ctx context.Context, who Actor, key string, p deadletter.PurgeOptions) (string, error) {
	rec := Record{Action: ActionPurge, Filter: &p.Filter, Why: p.Why}
	return svc.startTask(ctx, who, key, rec, p.Expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		p.Who, p.Report = historyName(who), report
		return deadletter.Purge(ctx, q, p)
	})
}

// historyName returns an actor's name as the history of tasks shows it.
func historyName(who Actor) string { return who.Name + " (console)" }

// errSlow reports that a task was started but has no id yet.
var errSlow = errors.New("the task is starting and has no id yet; look for it among the tasks")

// taskFunc runs a task on a DLQ.
type taskFunc func(context.Context, deadletter.Queue, deadletter.Report) (deadletter.Task, error)

// startTask runs a task in this process until the console is closed. It returns the task's id as soon as it is known.
func (svc *service) startTask(ctx context.Context, who Actor, key string, rec Record, expect int64, do taskFunc) (string, error) {
	q, err := svc.openFor(&who, key, rec)
	if err != nil {
		return "", err
	}
	run := &taskRun{Expect: expect, Running: true, Began: time.Now()}
	began, ended := make(chan string, 1), make(chan error, 1)
	report := deadletter.Report{
		Progress: func(t deadletter.Task) {
			svc.runs.update(func() { run.Task = t })
			select {
			case began <- t.ID: // the first report; later ones are dropped
			default:
			}
			svc.hub.notify()
		},
		Result: func(r deadletter.Result) {
			svc.runs.update(func() {
				if len(run.Results) == maxResults {
					run.Results = run.Results[1:]
				}
				run.Results = append(run.Results, r)
			})
		},
	}
	err = svc.runInBackground(func() {
		svc.runs.add(run)
		t, err := do(svc.ctx, q.q, report)
		svc.runs.update(func() {
			run.Running = false
			if t.ID != "" {
				run.Task = t
			}
			if err != nil {
				run.Err = redeliver.Redact(err.Error())
			}
		})
		ended <- errors.Join(err, svc.recordResult(who, q, rec, &t, err))
		q.wake()
		svc.hub.notify()
	})
	if err != nil {
		return "", errors.Join(err, svc.recordResult(who, q, rec, nil, err))
	}
	timer := time.NewTimer(maxTaskStart)
	defer timer.Stop()
	select {
	case id := <-began:
		return id, nil
	case err := <-ended:
		select {
		case id := <-began: // the task ended before this select
			return id, nil
		default:
		}
		return "", err
	case <-timer.C:
		return "", errSlow
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// controlTask asks the runner of a task, in any process, to pause or cancel the task.
func (svc *service) controlTask(ctx context.Context, who Actor, key, id string, a Action) error {
	rec := Record{Action: a, Task: id}
	q, err := svc.openFor(&who, key, rec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	switch a {
	case ActionPause:
		err = deadletter.Pause(ctx, q.q, id)
	case ActionCancel:
		err = deadletter.Cancel(ctx, q.q, id, deadletter.CancelOptions{Who: historyName(who)})
	default:
		err = fmt.Errorf("%s is not an action on a task", a)
	}
	err = errors.Join(err, svc.recordResult(who, q, rec, nil, err))
	svc.hub.notify()
	return err
}

// editMessage replays one message with changes. It continues if the client goes away, and for a grace period after the
// console is closed.
func (svc *service) editMessage(ctx context.Context, who Actor, key string, c deadletter.EditOptions) (string, error) {
	rec := Record{Action: ActionEdit, Position: c.Position, Why: c.Why}
	q, err := svc.openFor(&who, key, rec)
	if err != nil {
		return "", err
	}
	if err := svc.checkEditable(ctx, q, &c); err != nil {
		return "", errors.Join(err, svc.recordResult(who, q, rec, nil, err))
	}
	c.Who = historyName(who)
	type end struct {
		id  string
		err error
	}
	ended := make(chan end, 1)
	err = svc.runInBackground(func() {
		long, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxReadTime+maxTaskStart)
		defer cancel()
		defer context.AfterFunc(svc.ctx, func() {
			select {
			case <-time.After(maxCloseTime):
				cancel()
			case <-long.Done():
			}
		})()
		t, err := deadletter.Edit(long, q.q, c)
		ended <- end{t.ID, errors.Join(err, svc.recordResult(who, q, rec, &t, err))}
		q.wake()
		svc.hub.notify()
	})
	if err != nil {
		return "", errors.Join(err, svc.recordResult(who, q, rec, nil, err))
	}
	select {
	case e := <-ended:
		return e.id, e.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// checkEditable refuses to overwrite a body or header that is not fully shown.
func (svc *service) checkEditable(ctx context.Context, q *openQueue, c *deadletter.EditOptions) error {
	if svc.cfg.Redact == nil {
		return nil
	}
	ctx, release, err := svc.acquireRead(ctx)
	if err != nil {
		return err
	}
	defer release()
	m, err := deadletter.Find(ctx, q.q, c.Position)
	if err != nil {
		return &unchangedError{err}
	}
	if _, whole := svc.redact(Part{Kind: PartBody, Value: m.Body, DLQ: q.info, Headers: m.Headers}); c.Body != nil && !whole {
		return errors.New("the body is hidden, at least in part, and cannot be edited here")
	}
	for _, h := range m.Headers { // all of them, also those behind the ones that are shown
		if !slices.ContainsFunc(c.Set, func(s deadletter.Header) bool { return s.Name == h.Name }) {
			continue
		}
		if _, whole := svc.redact(Part{Kind: PartHeader, Name: h.Name, Value: h.Value, DLQ: q.info, Headers: m.Headers}); !whole {
			return fmt.Errorf("the header %s is hidden, and cannot be edited here", h.Name)
		}
	}
	return nil
}
