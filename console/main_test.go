package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a group with dead letters and a handler that can be fixed.
type shop struct {
	t      *testing.T
	b      *redelivertest.Broker
	orders *redelivertest.Subscription
	queue  deadletter.Queue

	mu    sync.Mutex
	fixed bool
}

// newShop fills a DLQ with messages that fail. The error of each is its text.
func newShop(t *testing.T, b *redelivertest.Broker, msgs ...*message.Message) *shop {
	t.Helper()
	s := &shop{t: t, b: b}
	billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
	s.orders = billing.Handle("orders", func(msg *message.Message) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fixed {
			return nil
		}
		return errors.New(msg.Metadata.Get("fails"))
	})
	b.Publish("orders", msgs...)
	if n := len(s.orders.DeadLetters()); n != len(msgs) {
		t.Fatalf("%d dead letters of %d messages", n, len(msgs))
	}
	s.queue = s.orders.DeadLetterQueue()
	return s
}

func (s *shop) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = true
}

func failingMessage(id, fails, body string) *message.Message {
	msg := message.NewMessage(id, []byte(body))
	msg.Metadata.Set("fails", fails)
	redelivertest.SetKey(msg, "customer-"+id)
	return msg
}

// open opens a console and waits until it has read its DLQs once.
func open(t *testing.T, b *redelivertest.Broker, cfg Config) *Console {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b.Wait()
	return c
}

// as accepts every request with one role.
func as(role Role) Auth {
	return Custom(func(*http.Request) (Actor, error) { return Actor{Name: "ann", Role: role}, nil })
}

// byHeader accepts every request with the role in its header Role.
func byHeader() Auth {
	return Custom(func(r *http.Request) (Actor, error) {
		role, err := ParseRole(r.Header.Get("Role"))
		return Actor{Name: "ann", Role: role}, err
	})
}

// answer is a response with its page as a tree.
type answer struct {
	*http.Response
	body string
	page *html.Node
}

func ask(t *testing.T, h http.Handler, method, target string, form url.Values, header ...string) *answer {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), method, target, body)
	r.Host, r.RemoteAddr = "localhost:8377", "127.0.0.1:40000"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for i := 0; i+1 < len(header); i += 2 {
		switch header[i] {
		case "RemoteAddr":
			r.RemoteAddr = header[i+1]
		case "Host":
			r.Host = header[i+1]
		default:
			r.Header.Add(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	a := &answer{Response: w.Result(), body: w.Body.String()}
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		var err error
		if a.page, err = html.Parse(strings.NewReader(a.body)); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// get requests a page that must exist.
func get(t *testing.T, h http.Handler, target string, header ...string) *answer {
	t.Helper()
	a := ask(t, h, http.MethodGet, target, nil, header...)
	if a.StatusCode != http.StatusOK {
		t.Fatalf("GET %s is %d:\n%s", target, a.StatusCode, a.text())
	}
	return a
}

// each calls do for all elements of a page.
func (a *answer) each(do func(*html.Node)) {
	for n := range a.page.Descendants() {
		if n.Type == html.ElementNode {
			do(n)
		}
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the text of a page as a user reads it.
func (a *answer) text() string {
	if a.page == nil {
		return a.body
	}
	var b strings.Builder
	for n := range a.page.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (a *answer) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(a.text(), want) {
			t.Errorf("%s does not say %q:\n%s", "the page", want, a.text())
		}
	}
}

// form returns the fields of the form with an action, as a browser would send them.
func (a *answer) form(t *testing.T, action string) url.Values {
	t.Helper()
	all := a.forms(action)
	if len(all) == 0 {
		t.Fatalf("there is no form %s on:\n%s", action, a.text())
	}
	return fieldsOf(all[0])
}

func (a *answer) forms(action string) (all []*html.Node) {
	a.each(func(n *html.Node) {
		if n.Data == "form" && attr(n, "action") == action && attr(n, "method") == "post" {
			all = append(all, n)
		}
	})
	return all
}

func fieldsOf(found *html.Node) url.Values {
	v := url.Values{}
	for n := range found.Descendants() {
		name := attr(n, "name")
		switch {
		case n.Type != html.ElementNode || name == "" || n.Data == "button":
		case (attr(n, "type") == "checkbox" || attr(n, "type") == "radio") && !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "checked" }):
		case n.Data == "textarea":
			text := ""
			if n.FirstChild != nil {
				text = n.FirstChild.Data
			}
			v.Add(name, strings.ReplaceAll(text, "\n", "\r\n")) // as browsers do
		default:
			v.Add(name, attr(n, "value"))
		}
	}
	return v
}

// auditLog collects the audit record.
type auditLog struct {
	mu    sync.Mutex
	lines []Record
	fails bool
}

func (r *auditLog) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails {
		return 0, errors.New("the disk is full")
	}
	var one Record
	if err := json.Unmarshal(line, &one); err != nil {
		return 0, err
	}
	r.lines = append(r.lines, one)
	return len(line), nil
}

func (r *auditLog) said() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", l.Who, l.Role, l.Action, l.Result))
	}
	return lines
}

type (
	node   = html.Node
	reason = redeliver.Reason
)
