package console

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/limits"
)

// Limits of the form's values.
const (
	maxRate        = 1_000_000
	maxWatch       = 24 * time.Hour
	maxCanarySteps = 10
	maxWhy         = 500
	defaultWatch   = deadletter.DefaultWatch
)

// taskFormPage is the forecast of a replay or a purge, with the form that starts it.
type taskFormPage struct {
	overview
	Forecast deadletter.Forecast
	TimedOut bool // the time ran out before all messages were counted
	Filter   *deadletter.Filter
	Words    []string
	Hidden   []hiddenField // the filter, as hidden fields
	// The text of the form's fields.
	Reason, Rate, Canary, Watch string
	// Waits is how long the retries of these messages took, or 0 if it is at most the default of Watch.
	Waits time.Duration
	// ReadCost is set if counting changes something and the user has not agreed to it.
	ReadCost, ReadURL string
	With              string // address of this page with the messages that were replayed too often
	Change            string // the address of the filter's form
}

// pAgain is the parameter that includes messages that were replayed too often.
const pAgain = "again"

// maxReplays returns the MaxReplays of the replay that an address or a form asks for; 0 is the default.
func maxReplays(v url.Values) int {
	if v.Get(pAgain) != "" {
		return math.MaxInt
	}
	return 0
}

// hiddenField is a hidden field of a form.
type hiddenField struct{ Name, Value string }

func hiddenFields(key string, f *deadletter.Filter) (fields []hiddenField) {
	v := url.Values{}
	writeFilter(v, f)
	fields = append(fields, hiddenField{"dlq", key})
	for name, values := range v {
		for _, value := range values {
			fields = append(fields, hiddenField{name, value})
		}
	}
	return fields
}

// taskFormHandler returns a handler for the form of an action. The template has the name of the action.
func (c *Console) taskFormHandler(a Action, title string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, who := r.URL.Query(), actorOf(r)
		f, err := readFilter(q)
		if err != nil {
			return err
		}
		o, err := c.svc.openOverview(who, q.Get("dlq"))
		if err != nil {
			return err
		}
		if err := c.svc.requireRight(who, o.Key, a); err != nil {
			return err
		}
		p := taskFormPage{
			overview: o, Filter: &f, Words: o.describe(&f), Hidden: hiddenFields(o.Key, &f),
			Reason: q.Get("why"), Rate: q.Get("rate"), Canary: "1, 10, 100", Watch: limits.ShortDuration(defaultWatch), Waits: o.waits(&f),
		}
		if q.Has("canary") {
			p.Canary = q.Get("canary")
		}
		page, look, again := string(a), q.Get("look"), q.Get(pAgain)
		if again != "" {
			p.Hidden = append(p.Hidden, hiddenField{pAgain, again})
		}
		p.Change = address("messages", o.Key, &f, "look", look)
		p.With = address(page, o.Key, &f, "look", look, pAgain, "yes")
		if o.ReadCosts && look == "" {
			p.ReadCost, p.ReadURL = o.Info.ReadEffect, address(page, o.Key, &f, "look", "yes", pAgain, again)
		} else if p.Forecast, p.TimedOut, err = c.svc.forecast(r.Context(), who, o.Key, a, deadletter.ReplayOptions{Filter: f, MaxReplays: maxReplays(q)}); err != nil {
			return err
		}
		c.show(w, r, http.StatusOK, page, layout{Title: title + " " + o.Info.DLQ, Nav: "dlq", Page: p})
		return nil
	}
}

// taskForm is a submitted form of a taskFormPage.
type taskForm struct {
	values url.Values
	dlq    string
	filter deadletter.Filter
	why    string
	expect int64 // number of messages that the page has shown; 0 if unknown
}

func readTaskForm(r *http.Request) (form taskForm, err error) {
	if form.values, form.filter, err = readFilterForm(r); err != nil {
		return form, err
	}
	form.dlq = form.values.Get("dlq")
	if form.why, err = readWhy(form.values); err != nil {
		return form, err
	}
	expect, err := readNumber(form.values, "expect", 0, 0, 1<<50)
	form.expect = int64(expect)
	return form, err
}

func (c *Console) replay(w http.ResponseWriter, r *http.Request) error {
	form, err := readTaskForm(r)
	if err != nil {
		return err
	}
	replay := deadletter.ReplayOptions{Filter: form.filter, Why: form.why, MaxReplays: maxReplays(form.values)}
	rate, err := readNumber(form.values, "rate", 0, 0, maxRate)
	if err != nil {
		return err
	}
	replay.Rate = float64(rate)
	if replay.Watch, err = readWatch(form.values.Get("watch")); err != nil {
		return err
	}
	if replay.Canary, err = readCanary(form.values.Get("canary")); err != nil {
		return err
	}
	id, err := c.svc.startReplay(r.Context(), actorOf(r), form.dlq, replay, form.expect)
	return redirectToTask(w, form.dlq, id, err)
}

func (c *Console) purge(w http.ResponseWriter, r *http.Request) error {
	form, err := readTaskForm(r)
	if err != nil {
		return err
	}
	if form.expect == 0 {
		return invalidInput("the form has no number of messages")
	}
	if err := c.checkConfirmation(r, form.dlq, "nothing was removed"); err != nil {
		return err
	}
	p := deadletter.PurgeOptions{Filter: form.filter, Everything: form.filter.All(), Why: form.why, Expect: form.expect}
	id, err := c.svc.startPurge(r.Context(), actorOf(r), form.dlq, p)
	return redirectToTask(w, form.dlq, id, err)
}

// checkConfirmation returns an error unless the user has typed the name of the DLQ. The error ends with consequence.
func (c *Console) checkConfirmation(r *http.Request, key, consequence string) error {
	q, err := c.svc.openOverview(actorOf(r), key)
	if err == nil && r.PostForm.Get("confirm") != q.Info.DLQ {
		err = invalidInput("the typed text is not the name of the DLQ, %s; %s", q.Info.DLQ, consequence)
	}
	return err
}

// redirectToTask redirects to a task that was started.
func redirectToTask(w http.ResponseWriter, key, id string, err error) error {
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

// readFilterForm parses a submitted form and its filter.
func readFilterForm(r *http.Request) (v url.Values, f deadletter.Filter, err error) {
	if err := parseForm(r); err != nil {
		return nil, f, err
	}
	f, err = readFilter(r.PostForm)
	return r.PostForm, f, err
}

func readWhy(v url.Values) (string, error) {
	why := strings.TrimSpace(v.Get("why"))
	if why == "" || len(why) > maxWhy {
		return "", invalidInput("say why, in at most %d bytes: the history keeps it", maxWhy)
	}
	return why, nil
}

// readWatch parses how long a replay watches the DLQ: a duration, or a number of seconds.
func readWatch(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return defaultWatch, nil
	}
	d, err := time.ParseDuration(s)
	if n, bad := strconv.Atoi(s); bad == nil {
		d, err = time.Duration(min(n, int(2*maxWatch/time.Second)))*time.Second, nil
	}
	if err != nil || d < time.Second || d > maxWatch {
		return 0, invalidInput("watch is %q, and must be a duration from 1s to 24h, such as 30s or 2h15m", s)
	}
	return d, nil
}

// waits returns how long the attempts of a message took from its first failure to its last, at most over the causes that the filter
// selects, or 0 if it is at most defaultWatch. The levels say less: many of them are old, or spare.
func (o *overview) waits(f *deadletter.Filter) (sum time.Duration) {
	for i := range o.Summary.Groups {
		if g := &o.Summary.Groups[i]; len(f.Fingerprints) == 0 || slices.Contains(f.Fingerprints, g.Fingerprint) {
			sum = max(sum, g.Retried)
		}
	}
	if sum <= defaultWatch {
		return 0
	}
	return sum
}

// readCanary parses a list such as "1, 10, 100". An empty list means no canary.
func readCanary(s string) (sizes []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 1_000_000 || len(sizes) == maxCanarySteps {
			return nil, invalidInput("the canary is %q, and must be at most %d numbers with commas between them, like 1, 10, 100", s, maxCanarySteps)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
