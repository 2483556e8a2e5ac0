package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// homePage is the page of all DLQs.
type homePage struct {
	Queues []queueView
	// Quiet are the empty queues that need no attention, if there are more than a few.
	Quiet []queueView
	// Total is the number of dead letters in all DLQs. Empty reports whether there are none, Uncounted whether some DLQs
	// were not counted.
	Total            int64
	Empty, Uncounted bool
	Order            string // by which the queues are sorted, or empty
	Running          int    // tasks of this process
	Notes            []string
}

// queueView is a DLQ as a page shows it.
type queueView struct {
	overview
	// State is "new" (not counted yet), "error" (the broker does not answer), "stale" (the state is old), "empty", or
	// "".
	State   string
	Age     time.Duration // of the oldest message, if known
	DropsIn time.Duration // until the broker drops the oldest message; 0 for never
	Bars    []hourBar
	MaxBar  int64
}

// attention returns how much attention a DLQ needs: a higher number means more, a negative one an empty DLQ.
func (v *queueView) attention() (worst int) {
	if v.State == "empty" {
		return -1
	}
	late := slices.ContainsFunc(v.Waiting, func(l Level) bool { return l.Late > 0 || l.Overdue >= minOverdue })
	for i, needs := range []bool{v.Paused != nil, late, v.Arrivals.Recent > 0, v.DropsIn > 0 && v.DropsIn < 24*time.Hour, v.State == "stale", v.State == "error"} {
		if needs {
			worst = i + 1
		}
	}
	return worst
}

// minOverdue is how long a waiting message must be overdue before the page reports it. Until then it is being
// delivered.
const minOverdue = 10 * time.Second

// maxMissedPolls is the number of refreshes without an answer after which a DLQ is shown as stale.
const maxMissedPolls = 3

func (c *Console) newQueueView(o overview) queueView {
	v := queueView{overview: o}
	switch {
	case o.ReadError != "":
		v.State = "error"
	case o.Counted.IsZero():
		v.State = "new"
	case time.Since(o.Counted) > maxMissedPolls*c.cfg.Refresh+maxPollTime/10:
		v.State = "stale"
	case o.Count == 0:
		v.State = "empty"
	}
	oldest := o.Oldest
	if !o.Read.IsZero() {
		v.Bars, v.MaxBar = o.Arrivals.Bars(), o.Arrivals.Most()
		if oldest.IsZero() {
			oldest = o.Summary.Oldest
		}
	}
	if o.Count > 0 && !oldest.IsZero() {
		v.Age = max(1, time.Since(oldest)) // 0 means unknown
		if o.HasRetention && o.Retention > 0 {
			v.DropsIn = max(time.Second, o.Retention-v.Age)
		}
	}
	return v
}

// homeOrders are the values by which the queues can be sorted, the greatest first.
var homeOrders = map[string]func(*queueView) int64{
	"count":   func(v *queueView) int64 { return v.Count },
	"oldest":  func(v *queueView) int64 { return int64(v.Age) },
	"arrived": func(v *queueView) int64 { return v.Arrivals.LastHour() },
}

func (c *Console) home(w http.ResponseWriter, r *http.Request) error {
	all := c.svc.overviews(actorOf(r))
	p := homePage{Empty: len(all) > 0, Running: c.svc.runs.running(all)}
	if who := actorOf(r); who.seesAll() { // a note may name a DLQ of which others must not learn
		for _, note := range c.svc.currentNotes() {
			p.Notes = append(p.Notes, c.svc.redactErrorText(who.withLowestRole(), deadletter.Info{}, nil, redeliver.Redact(note)))
		}
	}
	for _, o := range all {
		v := c.newQueueView(o)
		p.Total += o.Count
		p.Empty = p.Empty && v.State == "empty"
		p.Uncounted = p.Uncounted || v.State == "new" || v.State == "error"
		p.Queues = append(p.Queues, v)
	}
	p.Order = r.URL.Query().Get("order")
	if by := homeOrders[p.Order]; by != nil {
		slices.SortStableFunc(p.Queues, func(x, y queueView) int { return cmp.Compare(by(&y), by(&x)) })
	} else { // those that need attention first
		slices.SortStableFunc(p.Queues, func(x, y queueView) int { return cmp.Compare(y.attention(), x.attention()) })
	}
	p.fold()
	c.show(w, r, http.StatusOK, "home", layout{Title: "All queues", Nav: "home", Live: true, Page: p})
	return nil
}

// maxQuiet is the number of empty queues that are shown like the others.
const maxQuiet = 3

// fold moves the empty queues to Quiet. It keeps those with a task, a pause or waiting messages.
func (p *homePage) fold() {
	if p.Empty {
		return
	}
	quiet := func(v queueView) bool {
		return v.State == "empty" && v.Paused == nil && v.Holder == nil && waitingTotal(v.Waiting) == 0
	}
	for _, v := range p.Queues {
		if quiet(v) {
			p.Quiet = append(p.Quiet, v)
		}
	}
	if len(p.Quiet) <= maxQuiet {
		p.Quiet = nil
		return
	}
	p.Queues = slices.DeleteFunc(p.Queues, quiet)
}

// fullLevels returns the levels that have messages, or may have some, and emptyLevels the others.
func fullLevels(all []Level) []Level {
	return slices.DeleteFunc(slices.Clone(all), isEmptyLevel)
}

func emptyLevels(all []Level) []Level {
	return slices.DeleteFunc(slices.Clone(all), func(l Level) bool { return !isEmptyLevel(l) })
}

func isEmptyLevel(l Level) bool { return l.Count == 0 && l.Late <= 0 && l.Overdue < minOverdue }

// waitingTotal returns the number of waiting messages.
func waitingTotal(all []Level) (n int64) {
	for _, l := range all {
		n += l.Count
	}
	return n
}

// maxGroups is the maximum number of causes on a page.
const maxGroups = 50

// dlqPage is the page of one DLQ, with its causes first.
type dlqPage struct {
	queueView
	Groups     []groupView
	From, Next int // indexes of causes; Next is 0 at the end
	Form       filterForm
	List       listView
	Filter     *deadletter.Filter // matches all messages
	// ReplayDenied explains why the user may neither replay nor purge. It is empty if they may.
	ReplayDenied string
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
	from, err := readNumber(q, "from", 0, 0, deadletter.DefaultMaxGroups)
	if err != nil {
		return err
	}
	who := actorOf(r)
	o, err := c.svc.openOverview(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	p := dlqPage{queueView: c.newQueueView(o), From: from, Filter: &deadletter.Filter{}}
	p.ReplayDenied = c.denialOf(who, o.Key, ActionReplay)
	groups := o.Summary.Groups
	for i := from; i < min(from+maxGroups, len(groups)); i++ {
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
	if from+maxGroups < len(groups) {
		p.Next = from + maxGroups
	}
	p.Form = newForm(o.Key, c.denialOf(who, o.Key, ActionSearch) == "", listQuery{})
	if p.State != "error" {
		if p.List, err = c.newListView(r, o, listQuery{Size: dlqRows}); err != nil {
			p.List.ReadError = c.svc.redactErrorFor(who, o.Key, err)
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
	if err := c.svc.requestCauses(actorOf(r), key); err != nil {
		return err
	}
	redirect(w, address("dlq", key, nil, "note", "reading"))
	return nil
}

// denialOf returns why a user may not perform an action on a DLQ. It is empty if they may.
func (c *Console) denialOf(who Actor, key string, a Action) string {
	_, here, err := c.svc.findQueue(who, key)
	if err == nil {
		err = c.svc.checkRight(here, a)
	}
	if err != nil {
		text := err.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return ""
}
