package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/linediff"
)

const (
	// maxEditBytes is the maximum size in bytes of a body that can be edited in a form. newHeaderFields is the number
	// of headers that can be added at once.
	maxEditBytes    = 256 << 10
	newHeaderFields = 3
)

// editPage is the form that changes a message and, once it is filled in, a preview of the changes.
type editPage struct {
	*messageView
	// Text is the body in the form. BodyLocked explains why it cannot be edited.
	Text, BodyLocked string
	Headers          []editHeader
	New              []editHeader
	Why              string
	// Preview reports whether the page is the second step, which shows the message to be sent.
	Preview  bool
	Body     []linediff.Line
	Changed  []headerDiff
	SameBody bool
}

// editHeader is a header in the form.
type editHeader struct {
	Name, Value string
	Locked      string // why it cannot be edited
	Remove      bool
}

// headerDiff is a header before and after the edit; an absent header is empty.
type headerDiff struct {
	Name, Before, After string
	Added, Removed      bool
}

func (c *Console) editForm(w http.ResponseWriter, r *http.Request) error {
	if err := c.svc.requireRight(actorOf(r), r.FormValue("dlq"), ActionEdit); err != nil {
		return err
	}
	l, err := c.requestedMessage(w, r)
	if l == nil {
		return err
	}
	if err := checkHeaderCount(l); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "edit", layout{Title: "Edit " + tableText(l.ID), Nav: "dlq", Page: newEditPage(l)})
	return nil
}

// checkHeaderCount returns an error if the page shows only some of a message's headers, because such a message cannot
// be edited.
func checkHeaderCount(l *messageView) error {
	if l.HeadersOmitted == 0 {
		return nil
	}
	return invalidInput("this message has %s headers, and the console edits messages with at most %d: redeliver dlq edit edits it", formatNumber(int64(len(l.Headers)+len(l.Foreign)+l.HeadersOmitted)), maxHeaders)
}

func newEditPage(l *messageView) editPage {
	p := editPage{messageView: l, Text: string(l.Body), New: make([]editHeader, newHeaderFields)}
	p.BodyLocked = whyBodyReadOnly(l)
	names := make(map[string]int)
	for _, h := range l.Headers {
		names[h.Name]++
	}
	for _, h := range l.Headers {
		e := editHeader{Name: h.Name, Value: string(h.Value)}
		switch {
		case deadletter.LockedHeader(h.Name):
			e.Locked = "it identifies the message"
		case !h.Whole:
			e.Locked = "it is hidden"
		case names[h.Name] > 1:
			e.Locked = "the message has it more than once"
		case h.Value == nil, e.Value != escapeInvisible(e.Value), strings.ContainsAny(e.Value, "\n"):
			e.Locked = "its value is not a line of text"
		}
		if e.Locked != "" {
			e.Value = tableText(h.Value)
		}
		p.Headers = append(p.Headers, e)
	}
	return p
}

// whyBodyReadOnly returns why a body cannot be edited in a form. A form changes line ends: if all of them are "\n" they can
// be restored, otherwise they cannot.
func whyBodyReadOnly(l *messageView) string {
	switch {
	case !l.Whole:
		return "parts of it are hidden"
	case l.Body == nil:
		return "it is null"
	case len(l.Body) > maxEditBytes:
		return "it is longer than " + formatSize(maxEditBytes)
	case !utf8.Valid(l.Body), bytes.ContainsRune(l.Body, '\r'), escapeInvisible(string(l.Body)) != string(l.Body):
		return "it is not plain text, or has characters that a form does not give back as they are"
	default:
		return ""
	}
}

// restoreLineEnds restores line ends that a browser has changed in a text.
func restoreLineEnds(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (c *Console) edit(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	if err := c.svc.requireRight(actorOf(r), r.FormValue("dlq"), ActionEdit); err != nil {
		return err
	}
	v := r.PostForm
	v.Set("look", "yes") // the user agreed when the form was shown
	r.Form.Set("look", "yes")
	l, err := c.requestedMessage(w, r)
	if err != nil {
		return &unchangedError{err}
	}
	if err := checkHeaderCount(l); err != nil {
		return err
	}
	if id := v.Get("id"); id != l.ID {
		return invalidInput("another message is at this position now; look again")
	}
	p := newEditPage(l)
	p.Why = v.Get("why")
	change := deadletter.EditOptions{Position: l.Position, ID: l.ID}
	if p.BodyLocked == "" && v.Has("body") {
		p.Text = restoreLineEnds(v.Get("body"))
		if p.Text != string(l.Body) {
			change.Body = []byte(p.Text)
		}
	}
	if err := p.readHeaders(v, &change); err != nil {
		return err
	}
	if change.Body == nil && len(change.Set)+len(change.Remove) == 0 {
		return invalidInput("nothing was changed; replay the message instead")
	}
	if change.Why, err = readWhy(v); err != nil {
		return err
	}
	if v.Get("step") != "send" {
		p.preview(&change)
		c.show(w, r, http.StatusOK, "edit", layout{Title: "Edit " + tableText(l.ID), Nav: "dlq", Page: p})
		return nil
	}
	key := v.Get("dlq")
	id, err := c.svc.editMessage(r.Context(), actorOf(r), key, change)
	if err != nil {
		return err
	}
	redirect(w, address("task", key, nil, "id", id, "note", "edited"))
	return nil
}

// readHeaders parses the headers of the form: existing ones by their index, and new ones.
func (p *editPage) readHeaders(v url.Values, change *deadletter.EditOptions) error {
	for i := range p.Headers {
		h := &p.Headers[i]
		if h.Locked != "" {
			continue
		}
		field := fmt.Sprintf("h%d", i)
		was := h.Value
		if v.Has(field) {
			h.Value = restoreLineEnds(v.Get(field))
		}
		h.Remove = v.Get(field+"-remove") != ""
		switch {
		case h.Remove:
			change.Remove = append(change.Remove, h.Name)
		case h.Value != was:
			change.Set = append(change.Set, deadletter.Header{Name: h.Name, Value: []byte(h.Value)})
		}
	}
	for i := range p.New {
		h := &p.New[i]
		h.Name, h.Value = strings.TrimSpace(v.Get(fmt.Sprintf("n%d-name", i))), restoreLineEnds(v.Get(fmt.Sprintf("n%d", i)))
		if h.Name == "" {
			if h.Value != "" {
				return invalidInput("a new header needs a name")
			}
			continue
		}
		there := slices.ContainsFunc(p.messageView.Headers, func(v headerView) bool { return v.Name == h.Name })
		if there || deadletter.LockedHeader(h.Name) || len(h.Name) > maxParam {
			return invalidInput("%s cannot be added: it exists already, or identifies the message", h.Name)
		}
		change.Set = append(change.Set, deadletter.Header{Name: h.Name, Value: []byte(h.Value)})
	}
	return nil
}

// preview fills in the changes that the edit would make.
func (p *editPage) preview(change *deadletter.EditOptions) {
	p.Preview = true
	p.SameBody = change.Body == nil
	if !p.SameBody {
		before, after := newPayload(p.messageView.Body), newPayload(change.Body)
		if before.Pretty != "" && after.Pretty != "" && before.Pretty != after.Pretty {
			p.Body = linediff.Compare(before.Pretty, after.Pretty)
		} else {
			p.Body = linediff.Compare(escapeInvisible(string(p.messageView.Body)), escapeInvisible(string(change.Body)))
		}
	}
	value := func(name string) (s string, ok bool) {
		for _, h := range p.messageView.Headers {
			if h.Name == name {
				return string(h.Value), true
			}
		}
		return "", false
	}
	for _, h := range change.Set {
		before, there := value(h.Name)
		p.Changed = append(p.Changed, headerDiff{Name: h.Name, Before: before, After: string(h.Value), Added: !there})
	}
	for _, name := range change.Remove {
		before, _ := value(name)
		p.Changed = append(p.Changed, headerDiff{Name: name, Before: before, Removed: true})
	}
}
