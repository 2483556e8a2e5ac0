package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// request is one request to a console.
type request struct {
	name   string
	method string
	target string
	form   url.Values
	least  Role
	change bool
}

func requests(t *testing.T, q deadletter.Queue) []request {
	t.Helper()
	key, at := q.Info().DLQ, where(t, q, "o-1")
	form := func(pairs ...string) url.Values {
		v := url.Values{"dlq": {key}, "why": {"a test"}}
		for i := 0; i+1 < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v
	}
	return []request{
		{"home", "GET", "/", nil, RoleViewer, false},
		{"a DLQ", "GET", page("dlq", q), nil, RoleViewer, false},
		{"causes", "POST", "/causes", form(), RoleViewer, false},
		{"messages", "GET", page("messages", q, "reason", "exhausted"), nil, RoleViewer, false},
		{"search by error", "GET", page("messages", q, "text", "card"), nil, RoleReader, false},
		{"search by body", "GET", page("messages", q, "body", "card"), nil, RoleReader, false},
		{"search by key", "GET", page("messages", q, "key", "customer-o-1"), nil, RoleReader, false},
		{"search by header", "GET", page("messages", q, "header", "fails", "value", "x"), nil, RoleReader, false},
		{"a message", "GET", page("message", q, "at", at), nil, RoleViewer, false},
		{"a payload", "GET", page("payload", q, "at", at), nil, RoleReader, false},
		{"tasks", "GET", "/tasks", nil, RoleViewer, false},
		{"replay form", "GET", page("replay", q), nil, RoleOperator, true},
		{"purge form", "GET", page("purge", q), nil, RoleOperator, true},
		{"edit form", "GET", page("edit", q, "at", at), nil, RoleOperator, true},
		{"waiting form", "GET", page("waiting", q), nil, RoleOperator, true},
		{"release", "POST", "/waiting", form("level", "1h", "kind", "release", "confirm", key), RoleOperator, true},
		{"cancel waiting", "POST", "/waiting", form("id", "none", "kind", "cancel", "confirm", key), RoleOperator, true},
		{"pause group form", "GET", page("pause", q), nil, RoleOperator, true},
		{"pause group", "POST", "/pause", form("confirm", key), RoleOperator, true},
		{"resume group", "POST", "/resume", form(), RoleOperator, true},
		{"replay", "POST", "/replay", form("id", "none"), RoleOperator, true},
		{"purge", "POST", "/purge", form("id", "none", "expect", "1", "confirm", key), RoleOperator, true},
		{"edit", "POST", "/edit", form("at", at, "id", "o-1", "body", "changed", "step", "preview"), RoleOperator, true},
		{"pause", "POST", "/task", form("id", "none", "ask", "pause"), RoleOperator, true},
		{"cancel", "POST", "/task", form("id", "none", "ask", "cancel"), RoleOperator, true},
		{"resume", "POST", "/task", form("id", "none", "ask", "resume"), RoleOperator, true},
	}
}

func TestRightsOfEachRole(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("read-only %v", readOnly), func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop(t, b, failingMessage("o-1", "card 1 declined", "body-of-o-1"))
				c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Auth: byHeader(), ReadOnly: readOnly, Audit: &auditLog{}})
				for _, role := range []string{"nobody", "viewer", "reader", "operator"} {
					is, _ := ParseRole(role)
					for _, r := range requests(t, s.queue) {
						a := ask(t, c, r.method, r.target, r.form, "Role", role)
						refused := a.StatusCode == http.StatusForbidden
						want := is < r.least || readOnly && r.change
						if refused != want {
							t.Errorf("%s: %s is %d: %s", role, r.name, a.StatusCode, a.text())
						}
					}
					if tasks, err := deadletter.History(t.Context(), s.queue); err != nil || (len(tasks) > 0) != (is == RoleOperator && !readOnly) {
						t.Errorf("after %s there are %d tasks: %v", role, len(tasks), err)
					}
				}
			})
		})
	}
}

// A viewer finds no content of messages on any page.
func TestAViewerSeesNothingOfMessages(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		msg := failingMessage("o-1", `card "4711" of 0815 declined`, "body-of-o-1")
		msg.Metadata.Set("tenant", "acme")
		s := newShop(t, b, msg)
		rec := &auditLog{}
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Auth: byHeader(), Audit: rec})
		at := where(t, s.queue, "o-1")
		for _, target := range []string{"/", page("dlq", s.queue), page("messages", s.queue), page("message", s.queue, "at", at)} {
			a := get(t, c, target, "Role", "viewer")
			for _, secret := range []string{"4711", "0815", "body-of", "customer-", "acme", "tenant"} {
				if strings.Contains(a.body, secret) {
					t.Errorf("%s shows a viewer %q", target, secret)
				}
			}
			a.has(t, "card <text> of <n> declined")
		}
		get(t, c, page("message", s.queue, "at", at), "Role", "viewer").has(t, "11 B, hidden. The role reader may see the body", "3 headers, hidden. The role reader may see them")
		if said := rec.said(); len(said) != 0 {
			t.Errorf("nothing was shown, and the record says %q", said)
		}
		get(t, c, page("message", s.queue, "at", at), "Role", "reader").has(t, "body-of-o-1", "4711", "acme", "customer-o-1")
		if said := rec.said(); !slices.Equal(said, []string{"ann reader reveal allowed"}) {
			t.Errorf("the record says %q", said)
		}
	})
}

func TestTheRecordSaysWhoDidWhat(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "1"), failingMessage("o-2", "closed", "2"))
		rec := &auditLog{}
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Auth: byHeader(), Audit: rec})
		key := s.queue.Info().DLQ
		ask(t, c, "POST", "/purge", url.Values{"dlq": {key}, "why": {"x"}, "expect": {"2"}, "confirm": {key}}, "Role", "reader")
		s.mend()
		a := ask(t, c, "POST", "/replay", url.Values{"dlq": {key}, "why": {"INC-7"}, "id": {"o-1"}}, "Role", "operator")
		if a.StatusCode != http.StatusSeeOther {
			t.Fatalf("%d: %s", a.StatusCode, a.text())
		}
		b.Wait()
		want := []string{"ann reader purge denied", "ann operator replay allowed", "ann operator replay done"}
		if said := rec.said(); !slices.Equal(said, want) {
			t.Fatalf("the record says %q, want %q", said, want)
		}
		end := rec.lines[2]
		if end.Why != "INC-7" || end.Task == "" || end.Status != deadletter.StatusDone || end.Counts.Replayed != 1 || end.DLQ != key ||
			len(end.Filter.IDs) != 1 || end.From == "" || end.Time.IsZero() {
			t.Errorf("the last line is %+v", end)
		}

		// The count of a forecast reveals whether a payload contains a text, as a list does.
		for _, target := range []string{page("replay", s.queue, "text", "card"), page("purge", s.queue, "header", "tenant", "value", "acme")} {
			rec.lines = nil
			get(t, c, target, "Role", "operator")
			if said := rec.said(); !slices.Equal(said, []string{"ann operator search allowed"}) || rec.lines[0].Filter == nil {
				t.Errorf("after %s the record says %q", target, said)
			}
		}
		rec.lines = nil
		get(t, c, page("replay", s.queue, "id", "o-2"), "Role", "operator")
		if said := rec.said(); len(said) > 0 {
			t.Errorf("after a forecast that asks for nothing in messages the record says %q", said)
		}

		// An action that cannot be recorded is refused, even if it only shows something.
		rec.fails = true
		for _, target := range []string{page("message", s.queue, "at", where(t, s.queue, "o-2")), page("payload", s.queue, "at", where(t, s.queue, "o-2"))} {
			if a := ask(t, c, "GET", target, nil, "Role", "reader"); a.StatusCode < 500 || strings.Contains(a.body, "00000000") {
				t.Errorf("%s is %d without a record: %s", target, a.StatusCode, a.text())
			}
		}
		if a := ask(t, c, "POST", "/replay", url.Values{"dlq": {key}, "why": {"x"}}, "Role", "operator"); a.StatusCode < 500 {
			t.Errorf("a replay without a record is %d", a.StatusCode)
		}
		if tasks, err := deadletter.History(t.Context(), s.queue); err != nil || len(tasks) != 1 {
			t.Errorf("%d tasks: %v", len(tasks), err)
		}
	})
}

func TestARedactorIsAskedForEverythingAndFailsClosed(t *testing.T) {
	for name, redact := range map[string]Redactor{
		"it hides": func(p Part) ([]byte, error) {
			return []byte(strings.ReplaceAll(string(p.Value), "secret", "(masked)")), nil
		},
		"it fails":  func(Part) ([]byte, error) { return nil, errors.New("no") },
		"it panics": func(p Part) ([]byte, error) { return p.Value[:1<<20], nil },
		"it writes over what it gets": func(p Part) ([]byte, error) {
			for i := range p.Value {
				p.Value[i] = '*'
			}
			return p.Value, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				msg := failingMessage("o-1", "a secret failed", `{"a":"secret"}`)
				msg.Metadata.Set("token", "secret")
				redelivertest.SetKey(msg, "secret-key")
				s := newShop(t, b, msg)
				c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Redact: redact, Audit: &auditLog{}})
				at := where(t, s.queue, "o-1")
				for _, target := range []string{"/", page("dlq", s.queue), page("messages", s.queue), page("message", s.queue, "at", at), page("payload", s.queue, "at", at), page("edit", s.queue, "at", at)} {
					if a := get(t, c, target); strings.Contains(a.body, "secret") || strings.Contains(a.body, "736563") || strings.Contains(a.body, "73 65 63") {
						t.Errorf("%s contains the secret: %s", target, a.text())
					}
				}
				// A body that is hidden cannot be overwritten.
				form := url.Values{"dlq": {s.queue.Info().DLQ}, "at": {at}, "id": {"o-1"}, "why": {"x"}, "body": {"new"}, "step": {"send"}}
				if a := ask(t, c, "POST", "/edit", form); a.StatusCode != http.StatusBadRequest {
					t.Errorf("the body was edited: %d %s", a.StatusCode, a.text())
				}
				ann, key := Actor{Name: "ann", Role: RoleOperator}, s.queue.Info().DLQ
				for what, change := range map[string]deadletter.EditOptions{
					"body":   {Body: []byte("new")},
					"header": {Set: []deadletter.Header{{Name: "token", Value: []byte("new")}}},
				} {
					change.Why, change.Position = "x", deadletter.Position(at)
					if _, err := c.svc.editMessage(t.Context(), ann, key, change); err == nil || !strings.Contains(err.Error(), "hidden") {
						t.Errorf("the service lets a hidden %s be edited: %v", what, err)
					}
				}
				if m, err := deadletter.Find(t.Context(), s.queue, deadletter.Position(at)); err != nil || string(m.Body) != `{"a":"secret"}` {
					t.Errorf("the message is %q now: %v", m.Body, err)
				}
			})
		})
	}
}
