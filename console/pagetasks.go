package console

import (
	"net/http"
	"time"
)

// shownTasks is the maximum number of tasks on a page.
const shownTasks = 100

// TasksPage is the page of the history of tasks.
type TasksPage struct {
	Queue string // the key of a DLQ, or empty for all
	Tasks []TaskView
	// Troubles are the DLQs that did not answer.
	Troubles []TaskTrouble
	Left     int // tasks that are not shown
}

// TaskTrouble is a DLQ whose tasks are unknown.
type TaskTrouble struct{ Key, Text string }

// TaskView is a task as a page shows it.
type TaskView struct {
	Work
	Words []string
	// Done is the number of settled messages, Of the number that was announced, 0 if unknown.
	Done, Of int64
	// Left is the remaining time at the current speed, 0 if unknown.
	Left time.Duration
	// MayAsk explains why the user may not pause, cancel or resume the task. It is empty if they may.
	MayAsk    string
	Unended   bool
	Resumable bool
}

func (c *Console) taskView(who Actor, w Work) TaskView {
	v := TaskView{Work: w, Words: describe(&w.Filter), MayAsk: c.why(who, w.Key, Pause)}
	n := w.Counts
	v.Done = n.Replayed + n.Edited + n.Purged + n.Imported + n.Quarantined + n.Refused
	if w.Job != nil {
		v.Of = max(w.Job.Expect, v.Done)
		if w.Job.Expect == 0 {
			v.Of = 0
		}
		if took := time.Since(w.Job.Began); w.Job.Running && v.Done > 0 && v.Of > v.Done {
			v.Left = time.Duration(float64(took) / float64(v.Done) * float64(v.Of-v.Done))
		}
	}
	v.Unended = w.Unfinished()
	v.Resumable = w.Resumable()
	return v
}

func (c *Console) tasks(w http.ResponseWriter, r *http.Request) error {
	key, who := r.URL.Query().Get("dlq"), actorOf(r)
	list, errs, err := c.desk.tasks(r.Context(), who, key)
	if err != nil {
		return err
	}
	p := TasksPage{Queue: key, Left: max(0, len(list)-shownTasks)}
	for _, t := range list[:min(len(list), shownTasks)] {
		p.Tasks = append(p.Tasks, c.taskView(who, t))
	}
	for _, q := range c.desk.known() {
		if err := errs[q.key]; err != nil {
			p.Troubles = append(p.Troubles, TaskTrouble{q.key, c.desk.about(who, q.key, err)})
		}
	}
	c.show(w, r, http.StatusOK, "tasks", Frame{Title: "Tasks", Nav: "tasks", Live: true, Page: p})
	return nil
}

func (c *Console) task(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	t, err := c.desk.task(r.Context(), who, q.Get("dlq"), q.Get("id"))
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "task", Frame{Title: "Task " + line(t.ID), Nav: "tasks", Live: true, Page: c.taskView(who, t)})
	return nil
}

// askTask handles the form below a task.
func (c *Console) askTask(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	key, id, who := r.PostForm.Get("dlq"), r.PostForm.Get("id"), actorOf(r)
	note := "asked"
	var err error
	switch r.PostForm.Get("ask") {
	case "pause":
		err = c.desk.ask(r.Context(), who, key, id, Pause)
	case "cancel":
		note = "cancelled"
		err = c.desk.ask(r.Context(), who, key, id, Cancel)
	case "resume":
		note = "resumed"
		err = c.desk.resume(r.Context(), who, key, id)
	default:
		err = wrong("a task can be asked to pause, to end, or to go on")
	}
	if err != nil {
		return err
	}
	redirect(w, address("task", key, nil, "id", id, "note", note))
	return nil
}
