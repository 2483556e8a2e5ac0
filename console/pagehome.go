package console

import (
	"net/http"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// homePage is the page of all DLQs.
type homePage struct {
	Queues []queueView
	// Total is the number of dead letters in all DLQs. Empty reports whether there are none, Unsure whether some DLQs
	// were not counted.
	Total         int64
	Empty, Unsure bool
	Running       int // tasks of this process
	Notes         []string
}

// queueView is a DLQ as a page shows it.
type queueView struct {
	overview
	// State is "new" (not counted yet), "error" (the broker does not answer), "stale" (the state is old), "empty", or
	// "".
	State string
	Age   time.Duration // of the oldest message, if known
	Left  time.Duration // until the broker drops the oldest message; 0 for never
	Bars  []hourBar
	Most  int64
}

// lateAfter is how long a waiting message must be overdue before the page reports it. Until then it is being delivered.
const lateAfter = 10 * time.Second

// staleAfter is the number of refreshes without an answer after which a DLQ is shown as stale.
const staleAfter = 3

func (c *Console) view(o overview) queueView {
	v := queueView{overview: o}
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
		v.Age = max(1, time.Since(oldest)) // 0 means unknown
		if o.HasKeeps && o.Keeps > 0 {
			v.Left = max(time.Second, o.Keeps-v.Age)
		}
	}
	return v
}

func (c *Console) home(w http.ResponseWriter, r *http.Request) error {
	all := c.desk.all(actorOf(r))
	p := homePage{Empty: len(all) > 0, Running: c.desk.jobs.running()}
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
	c.show(w, r, http.StatusOK, "home", layout{Title: "All queues", Nav: "home", Live: true, Page: p})
	return nil
}

// shownGroups is the maximum number of causes on a page.
const shownGroups = 50

// dlqPage is the page of one DLQ, with its causes first.
type dlqPage struct {
	queueView
	Groups     []groupView
	From, Next int // indexes of causes; Next is 0 at the end
	Form       filterForm
	List       listView
	Filter     *deadletter.Filter // matches all messages
	// MayReplay explains why the user may neither replay nor purge. It is empty if they may.
	MayReplay string
}

// groupView is a cause, with its share of all messages.
type groupView struct {
	deadletter.Group
	Share   float64
	Width   int // of the bar, 0 to 100
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
	p := dlqPage{queueView: c.view(o), From: from, Filter: &deadletter.Filter{}}
	p.MayReplay = c.why(who, o.Key, Replay)
	groups := o.Summary.Groups
	for i := from; i < min(from+shownGroups, len(groups)); i++ {
		g := groupView{Group: groups[i]}
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
	p.Form = newForm(o.Key, c.why(who, o.Key, Search) == "", listQuery{})
	if p.State != "error" {
		if p.List, err = c.listing(r, o, listQuery{Size: firstRows}); err != nil {
			p.List.Trouble = c.desk.about(who, o.Key, err)
		}
	}
	c.show(w, r, http.StatusOK, "dlq", layout{Title: o.Info.DLQ, Nav: "dlq", Live: true, Page: p})
	return nil
}

// causes requests one read of a DLQ that is not read in the background.
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

// why returns why a user may not perform an action on a DLQ. It is empty if they may.
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
