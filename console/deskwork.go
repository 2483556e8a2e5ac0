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
	// keptJobs is the number of tasks of this process that are kept, keptResults the number of results kept per task.
	keptJobs    = 50
	keptResults = 100
)

// Job is a task that this process runs or ran.
type Job struct {
	Task    deadletter.Task
	Expect  int64 // number of messages that was announced
	Running bool
	Err     string
	Began   time.Time
	Results []deadletter.Result // the latest ones
}

// jobs are the tasks of this process, the oldest first.
type jobs struct {
	mu   sync.Mutex
	list []*Job
}

func (j *jobs) add(job *Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.list) == keptJobs {
		j.list = j.list[1:]
	}
	j.list = append(j.list, job)
}

func (j *jobs) change(do func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do()
}

// view returns a copy of a task's state, or nil.
func (j *jobs) view(id string) *Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range slices.Backward(j.list) {
		if job.Task.ID == id {
			seen := *job
			seen.Results = append([]deadletter.Result(nil), job.Results...)
			return &seen
		}
	}
	return nil
}

// running returns the number of tasks that have not ended.
func (j *jobs) running() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range j.list {
		if job.Running {
			n++
		}
	}
	return n
}

// forecast counts the messages that an action would affect.
func (d *desk) forecast(ctx context.Context, who Actor, key string, a Action, r deadletter.ReplayOptions) (f deadletter.Forecast, cut bool, err error) {
	if err := d.permit(who, key, a); err != nil {
		return f, false, err
	}
	rec := Record{Action: List}
	if within(&r.Filter) { // the count reveals whether there is such a message
		rec = Record{Action: Search, Filter: &r.Filter}
	}
	q, err := d.enter(&who, key, rec)
	if err != nil {
		return f, false, err
	}
	ctx, leave, err := d.look(ctx)
	if err != nil {
		return f, false, err
	}
	defer leave()
	f, err = deadletter.DryRun(ctx, q.q, r)
	for i, why := range f.Refusals {
		f.Refusals[i] = d.quotation(who, q.info, why)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return f, true, nil
	}
	return f, false, err
}

// replay starts a replay and returns its id.
func (d *desk) replay(ctx context.Context, who Actor, key string, r deadletter.ReplayOptions, expect int64) (string, error) {
	rec := Record{Action: Replay, Filter: &r.Filter, Why: r.Why}
	return d.start(ctx, who, key, rec, expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		r.Who, r.Report = signature(who), report
		return deadletter.Replay(ctx, q, r)
	})
}

// resume continues a task in this process.
func (d *desk) resume(ctx context.Context, who Actor, key, id string) error {
	var expect int64
	if was := d.jobs.view(id); was != nil {
		expect = was.Expect
	}
	rec := Record{Action: Resume, Task: id}
	_, err := d.start(ctx, who, key, rec, expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		return deadletter.Resume(ctx, q, id, signature(who), report)
	})
	return err
}

// quarantine quarantines messages, which excludes them from replays.
func (d *desk) quarantine(ctx context.Context, who Actor, key string, i deadletter.QuarantineOptions, expect int64) (string, error) {
	rec := Record{Action: Quarantine, Filter: &i.Filter, Why: i.Why}
	return d.start(ctx, who, key, rec, expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		i.Who, i.Report = signature(who), report
		return deadletter.Quarantine(ctx, q, i)
	})
}

// purge permanently deletes messages.
func (d *desk) purge(ctx context.Context, who Actor, key string, p deadletter.PurgeOptions) (string, error) {
	rec := Record{Action: Purge, Filter: &p.Filter, Why: p.Why}
	return d.start(ctx, who, key, rec, p.Expect, func(ctx context.Context, q deadletter.Queue, report deadletter.Report) (deadletter.Task, error) {
		p.Who, p.Report = signature(who), report
		return deadletter.Purge(ctx, q, p)
	})
}

// signature returns an actor's name as the history of tasks shows it.
func signature(who Actor) string { return who.Name + " (console)" }

// errSlow reports that a task was started but has no id yet.
var errSlow = errors.New("the task is being started, and the broker takes its time; look for it among the tasks")

// taskFunc runs a task on a DLQ.
type taskFunc func(context.Context, deadletter.Queue, deadletter.Report) (deadletter.Task, error)

// start runs a task in this process until the console is closed. It returns the task's id as soon as it is known.
func (d *desk) start(ctx context.Context, who Actor, key string, rec Record, expect int64, do taskFunc) (string, error) {
	q, err := d.enter(&who, key, rec)
	if err != nil {
		return "", err
	}
	job := &Job{Expect: expect, Running: true, Began: time.Now()}
	began, ended := make(chan string, 1), make(chan error, 1)
	report := deadletter.Report{
		Progress: func(t deadletter.Task) {
			d.jobs.change(func() { job.Task = t })
			select {
			case began <- t.ID: // the first report; later ones are dropped
			default:
			}
			d.live.poke()
		},
		Result: func(r deadletter.Result) {
			d.jobs.change(func() {
				if len(job.Results) == keptResults {
					job.Results = job.Results[1:]
				}
				job.Results = append(job.Results, r)
			})
		},
	}
	err = d.background(func() {
		d.jobs.add(job)
		t, err := do(d.ctx, q.q, report)
		d.jobs.change(func() {
			job.Running = false
			if t.ID != "" {
				job.Task = t
			}
			if err != nil {
				job.Err = redeliver.Redact(err.Error())
			}
		})
		ended <- errors.Join(err, d.left(who, q, rec, &t, err))
		q.poke()
		d.live.poke()
	})
	if err != nil {
		return "", errors.Join(err, d.left(who, q, rec, nil, err))
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

// ask asks the runner of a task, in any process, to pause or to cancel it.
func (d *desk) ask(ctx context.Context, who Actor, key, id string, a Action) error {
	rec := Record{Action: a, Task: id}
	q, err := d.enter(&who, key, rec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	switch a {
	case Pause:
		err = deadletter.Pause(ctx, q.q, id)
	case Cancel:
		err = deadletter.Cancel(ctx, q.q, id, signature(who))
	default:
		err = fmt.Errorf("%s is not an action on a task", a)
	}
	err = errors.Join(err, d.left(who, q, rec, nil, err))
	d.live.poke()
	return err
}

// edit replays one message with changes. It continues if the client goes away, and for a grace period after the console
// is closed.
func (d *desk) edit(ctx context.Context, who Actor, key string, c deadletter.EditOptions) (string, error) {
	rec := Record{Action: Edit, Position: c.Position, Why: c.Why}
	q, err := d.enter(&who, key, rec)
	if err != nil {
		return "", err
	}
	if err := d.editable(ctx, q, &c); err != nil {
		return "", errors.Join(err, d.left(who, q, rec, nil, err))
	}
	c.Who = signature(who)
	type end struct {
		id  string
		err error
	}
	ended := make(chan end, 1)
	err = d.background(func() {
		long, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime+maxTaskStart)
		defer cancel()
		defer context.AfterFunc(d.ctx, func() {
			select {
			case <-time.After(closeTime):
				cancel()
			case <-long.Done():
			}
		})()
		t, err := deadletter.Edit(long, q.q, c)
		ended <- end{t.ID, errors.Join(err, d.left(who, q, rec, &t, err))}
		q.poke()
		d.live.poke()
	})
	if err != nil {
		return "", errors.Join(err, d.left(who, q, rec, nil, err))
	}
	select {
	case e := <-ended:
		return e.id, e.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// editable refuses to overwrite a body that the user could not see.
func (d *desk) editable(ctx context.Context, q *openQueue, c *deadletter.EditOptions) error {
	if d.cfg.Redact == nil {
		return nil
	}
	ctx, leave, err := d.look(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m, err := deadletter.Find(ctx, q.q, c.Position)
	if err != nil {
		return &beforeError{err}
	}
	if _, whole := d.redact(Part{Kind: PartBody, Value: m.Body, DLQ: q.info, Headers: m.Headers}); c.Body != nil && !whole {
		return errors.New("the body is hidden in part, and what is hidden cannot be edited here")
	}
	for _, h := range d.headers(q, m, m.Headers) {
		if h.Whole {
			continue
		}
		for _, s := range c.Set {
			if s.Name == h.Name {
				return fmt.Errorf("the header %s is hidden, and cannot be edited here", h.Name)
			}
		}
	}
	return nil
}
