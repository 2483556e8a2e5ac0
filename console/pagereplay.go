package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// Bounds of the values of a form.
const (
	maxRate    = 1_000_000
	maxWatch   = time.Hour
	maxStages  = 10
	maxWhy     = 500
	usualWatch = deadletter.DefaultWatch
)

// ReplayPage is a replay's forecast, and the form that starts it.
type ReplayPage struct {
	Overview
	Forecast deadletter.Forecast
	Cut      bool // the time was over before all was counted
	Filter   *deadletter.Filter
	Words    []string
	Hidden   []Field // the filter, as the form carries it along
	// The text of the form's fields.
	Why, Rate, Canary, Watch string
	// Ask is set where counting changes something and nobody has asked for it.
	Ask, AskURL string
	With        string // the address that takes quarantined messages along
	Change      string // the address with the filter's form
}

// Field is something that a form carries along.
type Field struct{ Name, Value string }

func hiddenFields(key string, f *deadletter.Filter) (fields []Field) {
	v := url.Values{}
	writeFilter(v, f)
	fields = append(fields, Field{"dlq", key})
	for name, values := range v {
		for _, value := range values {
			fields = append(fields, Field{name, value})
		}
	}
	return fields
}

func (c *Console) replayForm(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	o, err := c.desk.one(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	if err := c.desk.permit(who, o.Key, Replay); err != nil {
		return err
	}
	p := ReplayPage{
		Overview: o, Filter: &f, Words: describe(&f), Hidden: hiddenFields(o.Key, &f),
		Why: q.Get("why"), Rate: q.Get("rate"), Canary: "1, 10, 100", Watch: strconv.Itoa(int(usualWatch.Seconds())),
	}
	if q.Has("canary") {
		p.Canary = q.Get("canary")
	}
	with := f
	with.Quarantined = true
	p.Change = address("messages", o.Key, &f, "look", q.Get("look"))
	p.With = address("replay", o.Key, &with, "look", q.Get("look"))
	if o.Costly && q.Get("look") == "" {
		p.Ask, p.AskURL = o.Info.Look, address("replay", o.Key, &f, "look", "yes")
	} else if p.Forecast, p.Cut, err = c.desk.forecast(r.Context(), who, o.Key, Replay, deadletter.Replay{Filter: f}); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "replay", Frame{Title: "Replay from " + o.Info.DLQ, Nav: "dlq", Page: p})
	return nil
}

func (c *Console) replay(w http.ResponseWriter, r *http.Request) error {
	v, f, err := readFilterForm(r)
	if err != nil {
		return err
	}
	order := deadletter.Replay{Filter: f}
	if order.Why, err = readWhy(v); err != nil {
		return err
	}
	if order.Rate, err = readRate(v); err != nil {
		return err
	}
	watch, err := number(v, "watch", int(usualWatch.Seconds()), 1, int(maxWatch.Seconds()))
	if err != nil {
		return err
	}
	order.Watch = time.Duration(watch) * time.Second
	if order.Canary, err = readCanary(v.Get("canary")); err != nil {
		return err
	}
	expect, err := number(v, "expect", 0, 0, 1<<50)
	if err != nil {
		return err
	}
	key := v.Get("dlq")
	id, err := c.desk.replay(r.Context(), actorOf(r), key, order, int64(expect))
	return startedTask(w, key, id, err)
}

// quarantine marks the messages that the page of a replay has shown.
func (c *Console) quarantine(w http.ResponseWriter, r *http.Request) error {
	v, f, err := readFilterForm(r)
	if err != nil {
		return err
	}
	order := deadletter.Isolation{Filter: f}
	if order.Why, err = readWhy(v); err != nil {
		return err
	}
	expect, err := number(v, "expect", 0, 0, 1<<50)
	if err != nil {
		return err
	}
	key := v.Get("dlq")
	id, err := c.desk.quarantine(r.Context(), actorOf(r), key, order, int64(expect))
	return startedTask(w, key, id, err)
}

// startedTask leads to a task that was started.
func startedTask(w http.ResponseWriter, key, id string, err error) error {
	switch {
	case errors.Is(err, errSlow):
		redirect(w, address("tasks", key, nil, "note", "starting"))
	case err != nil:
		return err
	default:
		redirect(w, address("task", key, nil, "id", id, "note", "started"))
	}
	return nil
}

// readFilterForm reads a form that was sent, and which messages it means.
func readFilterForm(r *http.Request) (v url.Values, f deadletter.Filter, err error) {
	if err := parseForm(r); err != nil {
		return nil, f, err
	}
	f, err = readFilter(r.PostForm)
	return r.PostForm, f, err
}

func readRate(v url.Values) (float64, error) {
	rate, err := number(v, "rate", 0, 0, maxRate)
	return float64(rate), err
}

func readWhy(v url.Values) (string, error) {
	why := strings.TrimSpace(v.Get("why"))
	if why == "" || len(why) > maxWhy {
		return "", wrong("say why, in at most %d bytes: the history keeps it", maxWhy)
	}
	return why, nil
}

// readCanary reads "1, 10, 100"; nothing is no canary.
func readCanary(s string) (sizes []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 1_000_000 || len(sizes) == maxStages {
			return nil, wrong("the canary is %q, and must be at most %d numbers with commas between them, like 1, 10, 100", s, maxStages)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// PurgePage is a purge's forecast, and the form that starts it.
type PurgePage struct {
	Overview
	Forecast    deadletter.Forecast
	Cut         bool
	Words       []string
	Hidden      []Field
	Everything  bool
	Ask, AskURL string
	Change      string // the address with the filter's form
}

func (c *Console) purgeForm(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	o, err := c.desk.one(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	if err := c.desk.permit(who, o.Key, Purge); err != nil {
		return err
	}
	p := PurgePage{Overview: o, Words: describe(&f), Hidden: hiddenFields(o.Key, &f), Everything: f.All(), Change: address("messages", o.Key, &f, "look", q.Get("look"))}
	if o.Costly && q.Get("look") == "" {
		p.Ask, p.AskURL = o.Info.Look, address("purge", o.Key, &f, "look", "yes")
	} else if p.Forecast, p.Cut, err = c.desk.forecast(r.Context(), who, o.Key, Purge, deadletter.Replay{Filter: f}); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "purge", Frame{Title: "Purge " + o.Info.DLQ, Nav: "dlq", Page: p})
	return nil
}

func (c *Console) purge(w http.ResponseWriter, r *http.Request) error {
	v, f, err := readFilterForm(r)
	if err != nil {
		return err
	}
	p := deadletter.Removal{Filter: f, Everything: f.All()}
	if p.Why, err = readWhy(v); err != nil {
		return err
	}
	expect, err := number(v, "expect", 0, 1, 1<<50)
	if err != nil {
		return err
	}
	if expect == 0 {
		return wrong("the form has no number of messages")
	}
	p.Expect = int64(expect)
	key := v.Get("dlq")
	o, err := c.desk.one(actorOf(r), key)
	if err != nil {
		return err
	}
	if v.Get("confirm") != o.Info.DLQ {
		return wrong("what was typed is not the name of the DLQ, %s; nothing was removed", o.Info.DLQ)
	}
	id, err := c.desk.purge(r.Context(), actorOf(r), key, p)
	return startedTask(w, key, id, err)
}
