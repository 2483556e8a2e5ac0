package console

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	firstRows = 10 // rows on the page of a DLQ
	pageRows  = 50
)

// FilterForm is the form that selects messages.
type FilterForm struct {
	Key    string
	Filter deadletter.Filter
	// Header and Value are the only header that the form can filter by.
	Header, Value, KeyText string
	After, Before          string
	Newest                 bool
	Size                   int
	Reasons                []redeliver.Reason
	// Within reports whether the user may search by the content of messages.
	Within bool
}

func newForm(key string, within bool, w wants) FilterForm {
	f := FilterForm{Key: key, Filter: w.Filter, Newest: w.Newest, Size: w.Size, KeyText: visible(string(w.Filter.Key)), Within: within, Reasons: redeliver.Reasons()}
	for name, value := range w.Filter.Headers {
		f.Header, f.Value = name, value
	}
	if !w.Filter.After.IsZero() {
		f.After = w.Filter.After.Format(localTime)
	}
	if !w.Filter.Before.IsZero() {
		f.Before = w.Filter.Before.Format(localTime)
	}
	return f
}

// More reports whether any of the collapsed fields is filled in.
func (f FilterForm) More() bool { return f.Header != "" || f.After != "" || f.Before != "" }

// Is reports whether the form selects the reason r.
func (f FilterForm) Is(r redeliver.Reason) bool {
	return len(f.Filter.Reasons) == 1 && f.Filter.Reasons[0] == r
}

// ListView is a list of messages on a page.
type ListView struct {
	Key string
	Rows
	Skip int
	// Next and Back are the addresses of the adjacent pages, empty at the ends.
	Next, Back string
	// Ask is set if reading changes something and the user has not agreed. It describes the change; AskURL is the
	// address that reads nevertheless.
	Ask, AskURL string
	// Trouble explains why there is no list.
	Trouble string
	Newest  bool
	// Choose reports whether the user may select messages to replay or purge, Looked whether the user has agreed to the
	// read.
	Choose, Looked bool
}

// listing returns a list, or the question whether the user agrees to a costly read.
func (c *Console) listing(r *http.Request, o Overview, w wants) (l ListView, err error) {
	l.Key, l.Skip, l.Newest = o.Key, w.Skip, w.Newest
	order := ""
	if w.Newest {
		order = "newest"
	}
	q := r.URL.Query()
	l.Choose, l.Looked = c.why(actorOf(r), o.Key, Replay) == "", q.Get("look") != ""
	if o.Costly && q.Get("look") == "" {
		l.Ask = o.Info.ReadEffect
		l.AskURL = address("messages", o.Key, &w.Filter, "order", order, "look", "yes")
		return l, nil
	}
	l.Rows, err = c.desk.list(r.Context(), actorOf(r), o.Key, w)
	if err != nil {
		return l, err
	}
	page := func(skip int) string {
		return address("messages", o.Key, &w.Filter, "order", order, "look", q.Get("look"), "skip", strconv.Itoa(skip), "size", strconv.Itoa(w.Size))
	}
	if l.More {
		l.Next = page(w.Skip + w.Size)
	}
	if w.Skip > 0 {
		l.Back = page(max(0, w.Skip-w.Size))
	}
	return l, nil
}

// MessagesPage is the page of the messages that match a filter.
type MessagesPage struct {
	QueueView
	Form   FilterForm
	List   ListView
	Filter *deadletter.Filter
	Words  []string
	// MayReplay explains why the user may neither replay nor purge. It is empty if they may.
	MayReplay string
}

func (c *Console) messages(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	ask := wants{Filter: f, Newest: q.Get("order") == "newest"}
	if ask.Size, err = number(q, "size", pageRows, 1, maxRows); err != nil {
		return err
	}
	most := maxSkip
	if ask.Newest {
		most = maxNewer
	}
	if ask.Skip, err = number(q, "skip", 0, 0, most); err != nil {
		return err
	}
	o, err := c.desk.one(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	p := MessagesPage{QueueView: c.view(o), Form: newForm(o.Key, c.why(who, o.Key, Search) == "", ask), Filter: &f, Words: describe(&f)}
	p.MayReplay = c.why(who, o.Key, Replay)
	if p.List, err = c.listing(r, o, ask); err != nil {
		return err
	}
	// Each search is recorded, so the page does not repeat one.
	live := !o.Costly && ask.Skip == 0 && !within(&f)
	c.show(w, r, http.StatusOK, "messages", Frame{Title: "Messages of " + o.Info.DLQ, Nav: "dlq", Live: live, Page: p})
	return nil
}

// MessagePage is the page of one message.
type MessagePage struct {
	*Letter
	Payload *Payload
	Key     *Payload
	// Decoded is the body as Config.Decode returns it, nil if it was not decoded. Undecoded explains why.
	Decoded            *Payload
	Undecoded          string
	TraceURL           string
	MayReplay, MayEdit string
}

func (c *Console) message(w http.ResponseWriter, r *http.Request) error {
	l, err := c.asked(w, r)
	if l == nil {
		return err
	}
	who := actorOf(r)
	p := MessagePage{Letter: l, MayReplay: c.why(who, l.Overview.Key, Replay), MayEdit: c.why(who, l.Overview.Key, Edit), TraceURL: c.cfg.traceURL(l.State.TraceID())}
	if l.Shown {
		p.Payload = newPayload(l.Body)
		p.Decoded, p.Undecoded = c.desk.decode(r.Context(), l)
		if l.HasKey {
			p.Key = newPayload(l.Row.Key)
		}
	}
	c.show(w, r, http.StatusOK, "message", Frame{Title: "Message " + line(l.ID), Nav: "dlq", Page: p})
	return nil
}

// asked returns the message that a request names. If reading it changes something and the user has not agreed, asked
// answers with the question and returns no message.
func (c *Console) asked(w http.ResponseWriter, r *http.Request) (*Letter, error) {
	key, at := r.FormValue("dlq"), r.FormValue(pAt)
	if at == "" || len(at) > maxParam {
		return nil, wrong("the address must have the position of the message")
	}
	o, err := c.desk.one(actorOf(r), key)
	if err != nil {
		return nil, err
	}
	if o.Costly && r.FormValue("look") == "" {
		q := r.URL.Query()
		q.Set("look", "yes")
		c.show(w, r, http.StatusOK, "ask", Frame{Title: "Look into " + o.Info.DLQ, Nav: "dlq", Page: AskPage{o, strings.TrimPrefix(r.URL.Path, "/") + "?" + q.Encode()}})
		return nil, nil
	}
	return c.desk.letter(r.Context(), actorOf(r), key, deadletter.Position(at))
}

// AskPage asks the user whether to read the DLQ.
type AskPage struct {
	Overview
	URL string
}

// payload sends the body unchanged, as a file, because a browser must never show it as a page.
func (c *Console) payload(w http.ResponseWriter, r *http.Request) error {
	if err := c.desk.permit(actorOf(r), r.FormValue("dlq"), Reveal); err != nil {
		return err
	}
	l, err := c.asked(w, r)
	if l == nil {
		return err
	}
	name := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, cut(l.Overview.Info.DLQ, 100)+"-"+cut(string(l.Position), 50))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + ".bin"}))
	_, _ = w.Write(l.Body)
	return nil
}
