package console

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/bytetext"
)

const (
	dlqRows  = 10 // rows on the page of a DLQ
	pageRows = 50
)

// filterForm is the form that selects messages.
type filterForm struct {
	Key    string
	Filter deadletter.Filter
	// Header and Value are the only header that the form can filter by.
	Header, Value, KeyText string
	After, Before          string
	Newest                 bool
	Size                   int
	Reasons                []redeliver.Reason
	// MaySearch reports whether the user may search by the content of messages.
	MaySearch bool
}

func newForm(key string, maySearch bool, query listQuery) filterForm {
	f := filterForm{Key: key, Filter: query.Filter, Newest: query.Newest, Size: query.Size, MaySearch: maySearch, Reasons: redeliver.Reasons()}
	if query.Filter.Key != nil {
		f.KeyText = bytetext.Format(query.Filter.Key)
	}
	for name, value := range query.Filter.Headers {
		f.Header, f.Value = bytetext.Format([]byte(name)), bytetext.Format([]byte(value))
	}
	if !query.Filter.After.IsZero() {
		f.After = query.Filter.After.Format(localTime)
	}
	if !query.Filter.Before.IsZero() {
		f.Before = query.Filter.Before.Format(localTime)
	}
	return f
}

// More reports whether any of the collapsed fields is filled in.
func (f filterForm) More() bool { return f.Header != "" || f.After != "" || f.Before != "" }

// Is reports whether the form selects the reason r.
func (f filterForm) Is(r redeliver.Reason) bool {
	return len(f.Filter.Reasons) == 1 && f.Filter.Reasons[0] == r
}

// listView is a list of messages on a page.
type listView struct {
	Key string
	messageList
	Skip int
	// Next and Back are the addresses of the adjacent pages, empty at the ends.
	Next, Back string
	// ReadCost is set if reading changes something and the user has not agreed. It describes the change; ReadURL is the
	// address that reads nevertheless.
	ReadCost, ReadURL string
	// ReadError explains why there is no list.
	ReadError string
	Newest    bool
	// Selectable reports whether the user may select messages to replay or purge, ReadAgreed whether the user has agreed to
	// the read.
	Selectable, ReadAgreed bool
}

// newListView returns a list, or the question whether the user agrees to a costly read.
func (c *Console) newListView(r *http.Request, o overview, w listQuery) (l listView, err error) {
	l.Key, l.Skip, l.Newest = o.Key, w.Skip, w.Newest
	order := ""
	if w.Newest {
		order = "newest"
	}
	q := r.URL.Query()
	l.Selectable, l.ReadAgreed = c.denialOf(actorOf(r), o.Key, ActionReplay) == "", q.Get("look") != ""
	if o.ReadCosts && q.Get("look") == "" {
		l.ReadCost = o.Info.ReadEffect
		l.ReadURL = address("messages", o.Key, &w.Filter, "order", order, "look", "yes")
		return l, nil
	}
	l.messageList, err = c.svc.listMessages(r.Context(), actorOf(r), o.Key, w)
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

// messagesPage is the page of the messages that match a filter.
type messagesPage struct {
	queueView
	Form   filterForm
	List   listView
	Filter *deadletter.Filter
	Words  []string
	// ReplayDenied explains why the user may neither replay nor purge. It is empty if they may.
	ReplayDenied string
}

func (c *Console) messages(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	ask := listQuery{Filter: f, Newest: q.Get("order") == "newest"}
	if ask.Size, err = readNumber(q, "size", pageRows, 1, maxRows); err != nil {
		return err
	}
	maxSkipped := maxSkip
	if ask.Newest {
		maxSkipped = maxNewer
	}
	if ask.Skip, err = readNumber(q, "skip", 0, 0, maxSkipped); err != nil {
		return err
	}
	o, err := c.svc.openOverview(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	p := messagesPage{queueView: c.newQueueView(o), Form: newForm(o.Key, c.denialOf(who, o.Key, ActionSearch) == "", ask), Filter: &f, Words: o.describe(&f)}
	p.ReplayDenied = c.denialOf(who, o.Key, ActionReplay)
	if p.List, err = c.newListView(r, o, ask); err != nil {
		return err
	}
	// Each search is recorded, so the page does not repeat one.
	live := !o.ReadCosts && ask.Skip == 0 && !searchesContent(&f)
	c.show(w, r, http.StatusOK, "messages", layout{Title: "Messages of " + o.Info.DLQ, Nav: "dlq", Live: live, Page: p})
	return nil
}

// messagePage is the page of one message.
type messagePage struct {
	*messageView
	Payload *payloadView
	Key     *payloadView
	KeyText string // as a search accepts it
	// Decoded is the body as Config.Decode returns it, or nil. DecodeError says why decoding failed.
	Decoded                  *payloadView
	DecodeError              string
	TraceURL                 string
	ReplayDenied, EditDenied string
}

func (c *Console) message(w http.ResponseWriter, r *http.Request) error {
	l, err := c.requestedMessage(w, r)
	if l == nil {
		return err
	}
	who := actorOf(r)
	p := messagePage{messageView: l, ReplayDenied: c.denialOf(who, l.Overview.Key, ActionReplay), EditDenied: c.denialOf(who, l.Overview.Key, ActionEdit), TraceURL: c.cfg.traceURL(l.State.TraceID())}
	if l.Shown {
		p.Payload = newPayload(l.Body)
		p.Decoded, p.DecodeError = c.svc.decodeBody(r.Context(), l)
		if l.HasKey {
			p.Key, p.KeyText = newPayload(l.messageRow.Key), bytetext.Format(l.messageRow.Key)
		}
	}
	c.show(w, r, http.StatusOK, "message", layout{Title: "Message " + tableText(l.ID), Nav: "dlq", Page: p})
	return nil
}

// requestedMessage returns the message that a request names. If reading it changes something and the user has not
// agreed, requestedMessage answers with the question and returns no message.
func (c *Console) requestedMessage(w http.ResponseWriter, r *http.Request) (*messageView, error) {
	key, at := r.FormValue("dlq"), r.FormValue(pAt)
	if at == "" || len(at) > maxParam {
		return nil, invalidInput("the address must have the position of the message")
	}
	o, err := c.svc.openOverview(actorOf(r), key)
	if err != nil {
		return nil, err
	}
	if o.ReadCosts && r.FormValue("look") == "" {
		q := r.URL.Query()
		q.Set("look", "yes")
		c.show(w, r, http.StatusOK, "read-question", layout{Title: "Read " + o.Info.DLQ, Nav: "dlq", Page: readQuestionPage{o, strings.TrimPrefix(r.URL.Path, "/") + "?" + q.Encode()}})
		return nil, nil
	}
	return c.svc.readMessage(r.Context(), actorOf(r), key, deadletter.Position(at))
}

// readQuestionPage asks the user whether to read the DLQ.
type readQuestionPage struct {
	overview
	URL string
}

// payload sends the redacted body as a file, because a browser must never show it as a page.
func (c *Console) payload(w http.ResponseWriter, r *http.Request) error {
	if err := c.svc.requireRight(actorOf(r), r.FormValue("dlq"), ActionReveal); err != nil {
		return err
	}
	l, err := c.requestedMessage(w, r)
	if l == nil {
		return err
	}
	name := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, truncate(l.Overview.Info.DLQ, 100)+"-"+truncate(string(l.Position), 50))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + ".bin"}))
	_, _ = w.Write(l.Body)
	return nil
}
