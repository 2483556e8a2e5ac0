package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// clock matches the time on a page, because two pages may be rendered in different seconds.
var clock = regexp.MustCompile(`As of \S+ \S+ UTC`)

// A user can have a different role for each DLQ. A DLQ for which they have no role is hidden: no list and no address
// shows it, and the response is the same as for a DLQ that does not exist.
func TestRightsMayBeForSomeDLQs(t *testing.T) {
	rec := &auditLog{}
	orders, refunds, secret := newStub("orders.billing.dlq", 2), newStub("refunds.billing.dlq", 2), newStub("salaries.hr.dlq", 2)
	auth := Custom(func(*http.Request) (Actor, error) {
		return Actor{Name: "ann", Rights: []Right{{RoleViewer, "*.billing.dlq"}, {RoleOperator, "stub/orders.*"}}}, nil
	})
	c, err := New(Config{Queues: []Queue{{Queue: orders}, {Queue: refunds}, {Queue: secret}}, Auth: auth, Audit: rec})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, target := range []string{"/", "/tasks"} {
		if a := get(t, c, target); strings.Contains(a.body, "salaries") || !strings.Contains(a.text(), "operator of some") {
			t.Errorf("%s says %s", target, a.text())
		}
	}
	get(t, c, page("message", orders, "at", "0")).has(t, `"n": 0`, "Edit and replay", "key-0")
	m := get(t, c, page("message", refunds, "at", "0"))
	for _, not := range []string{`"n"`, "key-0"} {
		if strings.Contains(m.body, not) {
			t.Errorf("a viewer of refunds sees %q:\n%s", not, m.text())
		}
	}
	unknown := newStub("nowhere", 1)
	for _, name := range []string{"dlq", "messages", "message", "payload", "edit", "replay", "purge", "waiting", "task"} {
		with := []string{"at", "0", "id", "t-1"}
		hidden, none := ask(t, c, http.MethodGet, page(name, secret, with...), nil), ask(t, c, http.MethodGet, page(name, unknown, with...), nil)
		same := clock.ReplaceAllString(strings.ReplaceAll(hidden.text(), "salaries.hr.dlq", "nowhere"), "") == clock.ReplaceAllString(none.text(), "")
		if hidden.StatusCode != none.StatusCode || hidden.StatusCode < 400 || !same {
			t.Errorf("%s of a hidden DLQ is %d: %s\nand of none %d: %s", name, hidden.StatusCode, hidden.text(), none.StatusCode, none.text())
		}
	}
	form := func(q *stub) url.Values {
		return url.Values{"dlq": {q.info.DLQ}, "why": {"x"}, "expect": {"1"}, "confirm": {q.info.DLQ}, "id": {"id-0"}, "at": {"0"}, "ask": {"pause"}}
	}
	for _, to := range []string{"/replay", "/purge", "/edit", "/task"} {
		if a := ask(t, c, http.MethodPost, to, form(refunds)); a.StatusCode != http.StatusForbidden {
			t.Errorf("a viewer's %s is %d", to, a.StatusCode)
		}
		if a := ask(t, c, http.MethodPost, to, form(secret)); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s of a hidden DLQ is %d", to, a.StatusCode)
		}
		if a := ask(t, c, http.MethodPost, to, form(orders)); to != "/task" && a.StatusCode == http.StatusForbidden || to != "/task" && a.StatusCode == http.StatusNotFound {
			t.Errorf("an operator's %s is %d", to, a.StatusCode)
		}
	}
	for _, line := range rec.lines {
		if want := map[string]string{"orders.billing.dlq": "operator", "refunds.billing.dlq": "viewer"}[line.DLQ]; line.Role != want {
			t.Errorf("the record has %+v", line)
		}
	}
}

// An invalid right grants nothing.
func TestInvalidRightsAreRefused(t *testing.T) {
	for _, r := range []Right{{RoleOperator, "["}, {0, "*"}, {RoleOperator + 1, "*"}} {
		if who := (Actor{Name: "ann", Role: RoleViewer, Rights: []Right{r}}); who.isValid() {
			t.Errorf("a login with %+v succeeded", r)
		}
		if _, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: Basic(User{Name: "ann", Password: "a long password", Rights: []Right{r}})}); err == nil {
			t.Errorf("a user with %+v is accepted", r)
		}
	}
	proxy := BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Rights: func(_ string, groups []string) []Right {
		return []Right{{RoleReader, groups[0] + ".*"}}
	}})
	c, err := New(Config{Queues: []Queue{{Queue: newStub("orders.dlq", 1)}, {Queue: newStub("refunds.dlq", 1)}}, Auth: proxy, Audit: &auditLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := get(t, c, "/", "RemoteAddr", "10.0.0.1:9", "X-Forwarded-User", "ann", "X-Forwarded-Groups", "orders")
	if strings.Contains(a.body, "refunds") || !strings.Contains(a.body, "orders.dlq") {
		t.Errorf("the page says %s", a.text())
	}
}

// A DLQ that is created later is shown without a restart of the console.
func TestADLQIsAddedWhileItRuns(t *testing.T) {
	c, err := New(Config{Notes: []string{"nothing yet"}, Audit: &auditLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, "/").has(t, "nothing yet")
	q := newStub("orders.dlq", 1)
	if err := c.Add(Queue{Queue: q, Cluster: "eu"}); err != nil {
		t.Fatal(err)
	}
	c.SetNotes()
	if a := get(t, c, "/"); strings.Contains(a.text(), "nothing yet") || !strings.Contains(a.text(), "orders.dlq") {
		t.Errorf("the page says %s", a.text())
	}
	get(t, c, page("dlq", q))
	if err := c.Add(Queue{Queue: newStub("orders.dlq", 1), Cluster: "eu"}); err == nil {
		t.Error("it is shown twice")
	}
	if err := c.Add(Queue{Queue: newStub("orders.dlq", 1), Cluster: "us"}); err != nil {
		t.Fatal(err)
	}
	get(t, c, page("dlq", q)).has(t, "eu")
	get(t, c, "/dlq?dlq=us%2Forders.dlq").has(t, "us")
	c.Close()
	if err := c.Add(Queue{Queue: newStub("late", 1)}); err == nil {
		t.Error("a closed console takes a DLQ")
	}
}

// A DLQ for which a user has no role is to them as one that does not exist: on every page, in notes and in counts.
func TestAHiddenDLQIsLikeNone(t *testing.T) {
	login := Custom(func(*http.Request) (Actor, error) {
		return Actor{Name: "bob", Rights: []Right{{RoleOperator, "orders.*"}}}, nil
	})
	c, err := New(Config{Queues: []Queue{{Queue: newStub("orders.dlq", 1)}, {Queue: newStub("secret.dlq", 3)}}, Auth: login, Audit: &auditLog{}, Notes: []string{"kafka/secret.dlq is not shown"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.svc.runs.add(&taskRun{Task: deadletter.Task{ID: "t-1", DLQ: "secret.dlq"}, Running: true})
	if a := get(t, c, "/"); strings.Contains(a.body, "secret") || strings.Contains(a.text(), "1 task runs") {
		t.Errorf("the home page says %s", a.text())
	}
	for _, route := range []string{
		"GET dlq", "POST causes", "GET messages", "GET message", "GET payload", "GET search", "GET tasks", "GET task", "POST task", "GET replay", "POST replay", "GET purge", "POST purge",
		"GET waiting", "POST waiting", "GET pause", "POST pause", "POST resume", "GET edit", "POST edit",
	} {
		method, path, _ := strings.Cut(route, " ")
		answer := func(dlq string) string {
			values := url.Values{"dlq": {dlq}, "id": {"t-1"}, "at": {"0"}, "why": {"test"}, "confirm": {dlq}, "look": {"yes"}, "kind": {"cancel"}, "level": {"1h"}, "text": {"x"}}
			target, form := "/"+path+"?"+values.Encode(), url.Values(nil)
			if method == http.MethodPost {
				target, form = "/"+path, values
			}
			a := ask(t, c, method, target, form)
			return fmt.Sprint(a.StatusCode, clock.ReplaceAllString(strings.ReplaceAll(a.text(), dlq, "NAME"), ""))
		}
		if hidden, none := answer("secret.dlq"), answer("absent.dlq"); hidden != none {
			t.Errorf("%s: a hidden DLQ gets %s, and none %s", route, hidden, none)
		}
	}
}
