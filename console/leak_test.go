package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// quoting is a DLQ whose tasks, searches and refusals quote messages.
func quoting() *stub {
	q := newStub("quotes", 2)
	letter := q.make
	q.make = func(i int64) *deadletter.Message {
		m := letter(i)
		m.State.FirstError = `no answer about "secret-first"`
		m.Mismatch = "its headers name group secret-group, and quotes is of group billing"
		return m
	}
	q.tasks = []deadletter.Task{
		{
			ID: "t-1", Kind: deadletter.KindReplay, Who: "bob", Why: "a try", Created: time.Now(), Status: deadletter.StatusFailed,
			Filter: deadletter.Filter{Key: []byte("secret-key"), Headers: map[string]string{"x-tenant": "secret-tenant"}, ErrorText: "secret-text"},
			Note:   "1 was refused: header secret-note is too long",
		},
		{
			ID: "t-2", Kind: deadletter.KindEdit, Who: "bob", Why: "a try", Created: time.Now(), Status: deadletter.StatusDone,
			Diff: &deadletter.Diff{
				ID: "id-1", Position: "1", BodyBefore: "sha256:secret-sum, 3 bytes", BodyAfter: "sha256:secret-other, 4 bytes",
				Headers: []deadletter.HeaderChange{{Name: "x-region", Before: [][]byte{[]byte("secret-before")}, After: [][]byte{[]byte("secret-after")}}},
			},
		},
	}
	return q
}

// secrets are all quoted texts. A text that begins with x- is the name of a header, which is hidden only from viewers.
var secrets = []string{
	"secret-group", "secret-key", "secret-tenant", "secret-text", "secret-note", "secret-sum", "secret-other", "secret-before", "secret-after",
	"secret-error", "secret-first", "secret-why", "x-tenant", "x-region",
}

// quotations opens a console for that DLQ, with a task that the console has run.
func quotations(t *testing.T, cfg Config) (c *Console, q *stub, targets []string) {
	t.Helper()
	q = quoting()
	cfg.Queues, cfg.Auth = []Queue{{Queue: q}}, byHeader()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	c.svc.runs.add(&taskRun{
		Task: q.tasks[0], Err: "sending 1: secret-error", Began: time.Now(),
		Results: []deadletter.Result{{ID: "id-1", Position: "1", Outcome: deadletter.OutcomeRefused, Why: "its headers name group secret-why"}},
	})
	return c, q, []string{"/", page("dlq", q), page("messages", q), page("message", q, "at", "1"), "/tasks", page("tasks", q), page("task", q, "id", "t-1"), page("task", q, "id", "t-2")}
}

// Texts that quote a message are hidden from a viewer, but not from a reader.
func TestQuotationsAreHiddenFromAViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, q, targets := quotations(t, Config{Audit: &auditLog{}})
		defer c.Close()
		read := ""
		for _, target := range targets {
			seen := get(t, c, target, "Role", "viewer").body
			for _, s := range secrets {
				if strings.Contains(seen, s) {
					t.Errorf("%s shows a viewer %q", target, s)
				}
			}
			read += get(t, c, target, "Role", "reader").body
		}
		for _, s := range secrets {
			if !strings.Contains(read, s) {
				t.Errorf("%q is nowhere, so this test proves nothing about it", s)
			}
		}
		get(t, c, page("task", q, "id", "t-1"), "Role", "viewer").has(t, "key [hidden]", "header [hidden]: [hidden]", "error text with [hidden]", "refused [hidden]")
		get(t, c, page("task", q, "id", "t-2"), "Role", "viewer").has(t, "Body before [hidden]", "Body after [hidden], another one")

		// A broker's text is treated like an error.
		q.fail(errors.New(`dial tcp amqp://user:pass-secret@10.0.0.7: reading "secret-record": refused`))
		for range 2 { // before and after the background read has seen it
			for _, role := range []string{"viewer", "reader"} {
				for _, target := range append(targets, page("task", q, "id", "none")) {
					seen := ask(t, c, http.MethodGet, target, nil, "Role", role).body
					if strings.Contains(seen, "pass-secret") || role == "viewer" && strings.Contains(seen, "secret-record") {
						t.Errorf("%s shows a %s the broker's answer:\n%s", target, role, seen)
					}
				}
			}
			<-time.After(2 * DefaultRefresh)
		}
	})
}

// The redactor is called for quotations, too. If it fails, they are hidden.
func TestQuotationsAreRedacted(t *testing.T) {
	for name, redact := range map[string]Redactor{
		"it hides": func(p Part) ([]byte, error) {
			return []byte(strings.ReplaceAll(string(p.Value), "secret", "(masked)")), nil
		},
		"it fails":  func(Part) ([]byte, error) { return nil, errors.New("no") },
		"it panics": func(p Part) ([]byte, error) { return p.Value[:1<<20], nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &auditLog{}
				c, q, targets := quotations(t, Config{Audit: rec, Redact: redact})
				defer c.Close()
				for _, target := range append(targets, page("replay", q)) { // which shows why some are refused
					if seen := get(t, c, target, "Role", "operator").body; strings.Contains(seen, "secret") {
						t.Errorf("%s contains the secret:\n%s", target, seen)
					}
				}
				// The record of a search does not contain the search text, either.
				ask(t, c, http.MethodGet, page("messages", q, "key", "secret-key", "header", "x-tenant", "value", "secret-tenant", "text", "secret-text"), nil, "Role", "operator")
				q.fail(errors.New("reading secret-record: refused"))
				ask(t, c, http.MethodPost, "/task", map[string][]string{"dlq": {"quotes"}, "id": {"t-1"}, "ask": {"pause"}}, "Role", "operator")
				<-time.After(2 * DefaultRefresh)
				for _, target := range append(targets, page("purge", q)) {
					if seen := ask(t, c, http.MethodGet, target, nil, "Role", "operator").body; strings.Contains(seen, "secret") {
						t.Errorf("%s shows the broker's answer:\n%s", target, seen)
					}
				}
				lines, err := json.Marshal(rec.lines)
				if err != nil || strings.Contains(string(lines), "secret") || strings.Contains(string(lines), "c2VjcmV0") || !strings.Contains(string(lines), `"search"`) {
					t.Errorf("the record says %s: %v", lines, err)
				}
			})
		})
	}
}

// The stream of events reports that something has changed, but not what.
func TestTheStreamHasNoQuotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, q, _ := quotations(t, Config{Audit: &auditLog{}})
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil)
			req.Header.Set("Role", "viewer")
			c.ServeHTTP(&stream{header: http.Header{}, w: w}, req)
			_ = w.Close()
		}()
		lines := bufio.NewScanner(r)
		until := func(last string) {
			for lines.Scan() {
				if !slices.Contains([]string{"", "retry: 3000", "event: hello", "event: changed", "data: {}", ": still here"}, lines.Text()) {
					t.Errorf("the stream says %q", lines.Text())
				}
				if lines.Text() == last {
					return
				}
			}
			t.Errorf("the stream ends before %q: %v", last, lines.Err())
		}
		until("event: hello")
		q.fail(errors.New("reading secret-record: refused"))
		until("event: changed")
		cancel()
		for lines.Scan() { // a pipe has no buffer
		}
		ends(t, ended)
		c.Close()
	})
}
