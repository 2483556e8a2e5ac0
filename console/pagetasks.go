package console

import (
	"net/http"
	"time"
)

// maxTasks is the maximum number of tasks on a page.
const maxTasks = 100

// tasksPage is the page of the history of tasks.
type tasksPage struct {
	Queue string // the key of a DLQ, or empty for all
	Tasks []*taskView
	// Errors are the DLQs that did not answer.
	Errors  []taskError
	Omitted int // tasks that are not shown
}

// taskError is a DLQ whose tasks are unknown.
type taskError struct{ Key, Text string }

// taskView is a task as a page shows it.
type taskView struct {
	queueTask
	Words []string // on the page of one task
	// Done is the number of settled messages. Of is the announced number, or 0 if unknown.
	Done, Of int64
	// Remaining is the remaining time at the current speed, 0 if unknown. It is unknown for a canary, which waits between
	// its steps, and for a task that was resumed.
	Remaining time.Duration
	// Watching reports whether the task may still be in its canary.
	Watching bool
	// ControlDenied explains why the user may not pause, cancel or resume the task. It is empty if they may.
	ControlDenied string
}

func (c *Console) newTaskView(who Actor, w queueTask) *taskView {
	v := &taskView{queueTask: w, ControlDenied: c.denialOf(who, w.Key, ActionPause)}
	n := w.Counts
	v.Done = n.Replayed + n.Edited + n.Purged + n.Imported + n.Skipped + n.Refused
	if w.Run != nil {
		v.Of = max(w.Run.Expect, v.Done)
		if w.Run.Expect == 0 {
			v.Of = 0
		}
		canary := 0
		for _, n := range w.Canary {
			canary += n
		}
		v.Watching = w.Run.Running && v.Done <= int64(canary)
		isFirstRun := w.Run.Began.Sub(w.Created) < time.Minute
		if took := time.Since(w.Run.Began); w.Run.Running && canary == 0 && isFirstRun && v.Done > 0 && v.Of > v.Done {
			v.Remaining = time.Duration(float64(took) / float64(v.Done) * float64(v.Of-v.Done))
		}
	}
	return v
}

func (c *Console) tasks(w http.ResponseWriter, r *http.Request) error {
	key, who := r.URL.Query().Get("dlq"), actorOf(r)
	list, errs, err := c.svc.listTasks(r.Context(), who, key)
	if err != nil {
		return err
	}
	p := tasksPage{Queue: key, Omitted: max(0, len(list)-maxTasks)}
	for _, t := range list[:min(len(list), maxTasks)] {
		p.Tasks = append(p.Tasks, c.newTaskView(who, t))
	}
	for _, q := range c.svc.allQueues() {
		if err := errs[q.key]; err != nil {
			p.Errors = append(p.Errors, taskError{q.key, c.svc.redactErrorFor(who, q.key, err)})
		}
	}
	c.show(w, r, http.StatusOK, "tasks", layout{Title: "Tasks", Nav: "tasks", Live: true, Page: p})
	return nil
}

func (c *Console) task(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	t, err := c.svc.findTask(r.Context(), who, q.Get("dlq"), q.Get("id"))
	if err != nil {
		return err
	}
	v := c.newTaskView(who, t)
	o, err := c.svc.openOverview(who, t.Key)
	if err != nil {
		return err
	}
	v.Words = o.describe(&t.Filter, t.Causes...)
	c.show(w, r, http.StatusOK, "task", layout{Title: "Task " + tableText(t.ID), Nav: "tasks", Live: true, Page: v})
	return nil
}

// controlTask handles the form below a task.
func (c *Console) controlTask(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	key, id, who := r.PostForm.Get("dlq"), r.PostForm.Get("id"), actorOf(r)
	note := "pausing"
	var err error
	switch r.PostForm.Get("ask") {
	case "pause":
		err = c.svc.controlTask(r.Context(), who, key, id, ActionPause)
	case "cancel":
		note = "cancelled"
		err = c.svc.controlTask(r.Context(), who, key, id, ActionCancel)
	case "resume":
		note = "resumed"
		err = c.svc.resumeTask(r.Context(), who, key, id)
	default:
		err = invalidInput("a task can be paused, cancelled or resumed")
	}
	if err != nil {
		return err
	}
	redirect(w, address("task", key, nil, "id", id, "note", note))
	return nil
}
