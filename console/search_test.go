package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// One search covers all DLQs, by the content of messages, and with the user's rights for each DLQ.
func TestASearchCoversAllDLQs(t *testing.T) {
	rec := &auditLog{}
	orders, refunds, costly, hidden, silent := newStub("orders", 20), newStub("refunds", 20), newStub("costly", 20), newStub("salaries", 20), newStub("silent", 1)
	costly.info.ReadEffect = "a delivery"
	silent.fail(errSilent)
	auth := Custom(func(*http.Request) (Actor, error) {
		return Actor{Name: "ann", Rights: []Right{{RoleReader, "orders"}, {RoleViewer, "refunds"}, {RoleReader, "costly"}, {RoleReader, "silent"}}}, nil
	})
	c, err := New(Config{Queues: []Queue{{Queue: orders}, {Queue: refunds}, {Queue: costly}, {Queue: hidden}, {Queue: silent}}, Auth: auth, Audit: rec})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hits := func(text string) (at []string) {
		t.Helper()
		get(t, c, "/search?q="+text).each(func(n *node) {
			if href := attr(n, "href"); n.Data == "a" && strings.HasPrefix(href, "message?") {
				at = append(at, href)
			}
		})
		slices.Sort(at) // the smallest DLQ is first, but which one is smallest depends on earlier counts
		return at
	}
	if got := hits("id-7"); !slices.Equal(got, []string{"message?at=7&dlq=orders", "message?at=7&dlq=refunds"}) {
		t.Errorf("an id is found at %q", got)
	}
	for _, text := range []string{"key-7", "%22n%22%3A7%7D"} {
		if got := hits(text); !slices.Equal(got, []string{"message?at=7&dlq=orders"}) {
			t.Errorf("%s is found at %q", text, got)
		}
	}
	if got := hits("bank"); len(got) != 20 {
		t.Errorf("an error is found at %q", got)
	}
	a := get(t, c, "/search?q=id-7")
	a.has(t, "costly", "by id alone: refunds", "did not answer: silent")
	if strings.Contains(a.body, "salaries") || costly.scanned() > 0 {
		t.Errorf("it read where it has no right: %s", a.text())
	}
	for _, line := range rec.lines {
		if line.Action != ActionSearch || line.DLQ == "refunds" || line.Text == "" {
			t.Errorf("the record has %+v", line)
		}
	}
	if len(rec.lines) == 0 {
		t.Error("the searches are not recorded")
	}
	rec.mu.Lock()
	rec.fails = true
	rec.mu.Unlock()
	if a := ask(t, c, http.MethodGet, "/search?q=id-7", nil); a.StatusCode == http.StatusOK {
		t.Error("it is searched without a record")
	}
	if a := ask(t, c, http.MethodGet, "/search?q="+strings.Repeat("x", maxParam+1), nil); a.StatusCode != http.StatusBadRequest {
		t.Errorf("a long one is %d", a.StatusCode)
	}
}

// The page shows a decoder's result, or its error beside the body.
func TestABodyIsDecoded(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "\x00avro"), failingMessage("o-2", "closed", "\x00bad"), failingMessage("o-3", "closed", "\x00panic"), failingMessage("o-4", "closed", "other"))
		decode := func(_ context.Context, body []byte, _ []deadletter.Header) (Decoded, error) {
			switch string(body) {
			case "\x00avro":
				return Decoded{JSON: []byte(`{"order":{"sum":12345678901234567890}}`), As: "Avro, schema 7" + hostile}, nil
			case "\x00bad":
				return Decoded{}, errors.New("no schema 8" + hostile)
			case "\x00panic":
				panic("oops")
			}
			return Decoded{}, nil
		}
		cfg := Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}, Decode: decode, Auth: byHeader()}
		c := open(t, b, cfg)
		for id, want := range map[string]string{"o-1": `"sum": 12345678901234567890`, "o-2": "no schema 8", "o-3": "the decoder panicked: oops", "o-4": "other"} {
			a := get(t, c, page("message", s.queue, "at", where(t, s.queue, id)), "Role", "reader")
			a.has(t, want)
			clean(t, want, a)
		}
		if a := get(t, c, page("message", s.queue, "at", where(t, s.queue, "o-1")), "Role", "viewer"); strings.Contains(a.text(), "Avro") {
			t.Errorf("a viewer sees %s", a.text())
		}
		cfg.Redact = func(Part) ([]byte, error) { return []byte("***"), nil }
		if a := get(t, open(t, b, cfg), page("message", s.queue, "at", where(t, s.queue, "o-1")), "Role", "reader"); strings.Contains(a.text(), "12345678901234567890") {
			t.Errorf("a hidden value is decoded: %s", a.text())
		}
	})
}

func TestATraceHasALink(t *testing.T) {
	q := newStub("q", 1)
	made := q.make
	q.make = func(i int64) *deadletter.Message {
		m := made(i)
		m.State.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		return m
	}
	c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: &auditLog{}, TraceURL: "https://jaeger.example.com/trace/{trace}?uiFind=x"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := false
	get(t, c, page("message", q, "at", "0")).each(func(n *node) {
		found = found || n.Data == "a" && attr(n, "href") == "https://jaeger.example.com/trace/4bf92f3577b34da6a3ce929d0e0e4736?uiFind=x"
	})
	if !found {
		t.Error("there is no link to the trace")
	}
	for _, wrong := range []string{"javascript:alert({trace})", "https://jaeger.example.com/", "/trace/{trace}", "https:///{trace}", "\x00{trace}"} {
		if _, err := New(Config{Queues: []Queue{{Queue: q}}, TraceURL: wrong}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
