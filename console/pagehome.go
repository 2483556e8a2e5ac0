package console

import (
	"net/http"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// HomePage is every DLQ.
type HomePage struct {
	Queues []QueueView
	// Total is how many dead letters there are in all, Empty that there are none
	// anywhere, Unsure that not all were counted.
	Total         int64
	Empty, Unsure bool
	Running       int // tasks of this process
	Notes         []string
}

// QueueView is a DLQ as a page shows it.
type QueueView struct {
	Overview
	// State is "new" (not counted yet), "error" (the broker does not answer), "stale"
	// (what is shown is old), "empty", or "".
	State string
	Age   time.Duration // of the oldest message, if known
	Left  time.Duration // until the broker drops the oldest; 0 for never
	Bars  []Bar
	Most  int64
}

// lateAfter is for how long a waiting message may have been due before the page says so: until then it is on its
// way.
const lateAfter = 10 * time.Second

// staleAfter is after how many refreshes without an answer a DLQ is shown as stale.
const staleAfter = 3

func (c *Console) view(o Overview) QueueView {
	v := QueueView{Overview: o}
	switch {
	case o.Trouble != "":
		v.State = "error"
	case o.Counted.IsZero():
		v.State = "new"
	case time.Since(o.Counted) > staleAfter*c.cfg.Refresh+pollTime/10:
		v.State = "stale"
	case o.Count == 0:
		v.State = "empty"
	}
	oldest := o.Oldest
	if !o.Read.IsZero() {
		v.Bars, v.Most = o.Arrivals.Bars(), o.Arrivals.Most()
		if oldest.IsZero() {
			oldest = o.Summary.Oldest
		}
	}
	if o.Count > 0 && !oldest.IsZero() {
		v.Age = max(1, time.Since(oldest)) // 0 is not known
		if o.HasKeeps && o.Keeps > 0 {
			v.Left = max(time.Second, o.Keeps-v.Age)
		}
	}
	return v
}

func (c *Console) home(w http.ResponseWriter, r *http.Request) error {
	all := c.desk.all(actorOf(r))
	p := HomePage{Empty: len(all) > 0, Running: c.desk.jobs.running()}
	for _, note := range c.desk.told() {
		p.Notes = append(p.Notes, c.desk.errorText(actorOf(r).lowest(), deadletter.Info{}, nil, redeliver.Redact(note)))
	}
	for _, o := range all {
		v := c.view(o)
		p.Total += o.Count
		p.Empty = p.Empty && v.State == "empty"
		p.Unsure = p.Unsure || v.State == "new" || v.State == "error"
		p.Queues = append(p.Queues, v)
	}
	c.show(w, r, http.StatusOK, "home", Frame{Title: "All queues", Nav: "home", Live: true, Page: p})
	return nil
}

// shownGroups is how many causes one page shows.
const shownGroups = 50

// DLQPage is one DLQ: its causes first.
type DLQPage struct {
	QueueView
	Groups     []GroupView
	From, Next int // of the causes; Next is 0 at the end
	Form       FilterForm
	List       ListView
	Filter     *deadletter.Filter // that takes all
	// MayReplay is why the user may neither replay nor purge; empty if they may.
	MayReplay string
}

// GroupView is a cause, with its share of all.
type GroupView struct {
	deadletter.Group
	Share   float64
	Width   int // of 100
	Average int64
}

func (c *Console) dlq(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, err := number(q, "from", 0, 0, deadletter.DefaultMaxGroups)
	if err != nil {
		return err
	}
	who := actorOf(r)
	o, err := c.desk.one(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	p := DLQPage{QueueView: c.view(o), From: from, Filter: &deadletter.Filter{}}
	p.MayReplay = c.why(who, o.Key, Replay)
	groups := o.Summary.Groups
	for i := from; i < min(from+shownGroups, len(groups)); i++ {
		g := GroupView{Group: groups[i]}
		if o.Summary.Matched > 0 {
			g.Share = float64(g.Count) / float64(o.Summary.Matched)
			g.Width = max(1, int(g.Share*100))
		}
		if g.Count > 0 {
			g.Average = (g.Attempts + g.Count/2) / g.Count
		}
		p.Groups = append(p.Groups, g)
	}
	if from+shownGroups < len(groups) {
		p.Next = from + shownGroups
	}
	p.Form = newForm(o.Key, c.why(who, o.Key, Search) == "", wants{})
	if p.State != "error" {
		if p.List, err = c.listing(r, o, wants{Size: firstRows}); err != nil {
			p.List.Trouble = c.desk.about(who, o.Key, err)
		}
	}
	c.show(w, r, http.StatusOK, "dlq", Frame{Title: o.Info.DLQ, Nav: "dlq", Live: true, Page: p})
	return nil
}

// causes has a DLQ read once that is not read in the background.
func (c *Console) causes(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	key := r.PostForm.Get("dlq")
	if err := c.desk.causes(actorOf(r), key); err != nil {
		return err
	}
	redirect(w, address("dlq", key, nil, "note", "reading"))
	return nil
}

// why is why somebody may not do something with a DLQ; empty when they may.
func (c *Console) why(who Actor, key string, a Action) string {
	_, here, err := c.desk.queue(who, key)
	if err == nil {
		err = c.desk.may(here, a)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
