package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// commandStub is a DLQ whose group's consumers accept commands.
type commandStub struct {
	*stub
	mu    sync.Mutex
	given []deadletter.Command
	err   error
}

func (q *commandStub) SendCommand(_ context.Context, c deadletter.Command) (deadletter.Command, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, err := deadletter.NewCommand(c)
	if err = errors.Join(err, q.err); err == nil {
		q.given = append(q.given, c)
	}
	return c, err
}

func (q *commandStub) Commands(context.Context) ([]deadletter.Command, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.given), nil
}

// An operator releases and cancels waiting messages. The operator must type the DLQ's name,
// the consumers receive the form's values, and the audit log records the action.
func TestWaitingMessagesAreReleasedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &commandStub{stub: newStub("q", 3)}
		q.waiting = []Level{{Name: "10s", Count: 4}, {Name: "1h", Count: 2}, {Name: "retry"}}
		rec := &auditLog{}
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Auth: byHeader(), Audit: rec})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Second)
		get(t, c, page("dlq", q), "Role", "operator").has(t, "1h 2 none Release… Move to the DLQ…")
		if strings.Contains(get(t, c, page("dlq", q), "Role", "reader").text(), "Release…") {
			t.Error("it is offered to a reader")
		}
		at := page("waiting", q)
		if f := get(t, c, page("waiting", q, "kind", "release", "level", "1h"), "Role", "operator").form(t, "waiting"); f.Get("kind") != "release" || f.Get("level") != "1h" {
			t.Errorf("the link to release 1h selects %v", f)
		}
		form := get(t, c, at, "Role", "operator")
		form.has(t, "10s 4", "1h 2", "No commands that still apply")
		clean(t, at, form)
		readable(t, at, form)
		submit := func(want int, pairs ...string) {
			t.Helper()
			v := url.Values{"dlq": {"q"}, "why": {"the bank is back"}, "confirm": {"q"}, "kind": {"release"}}
			for i := 0; i+1 < len(pairs); i += 2 {
				v.Set(pairs[i], pairs[i+1])
			}
			if a := ask(t, c, http.MethodPost, "/waiting", v, "Role", "operator"); a.StatusCode != want {
				t.Errorf("%q is %d, want %d: %s", pairs, a.StatusCode, want, a.text())
			}
		}
		submit(http.StatusBadRequest, "level", "1h", "confirm", "another")
		submit(http.StatusBadRequest)
		submit(http.StatusBadRequest, "level", "soon")
		submit(http.StatusBadRequest, "level", "1h", "kind", "forget")
		submit(http.StatusBadRequest, "level", "1h", "why", " ")
		submit(http.StatusBadRequest, "id", "m-1", "reason", "exhausted")
		submit(http.StatusBadRequest, "level", "1h", "id", "m-1") // a release applies to whole levels
		if len(q.given) != 0 {
			t.Fatalf("the consumers got %+v", q.given)
		}
		submit(http.StatusSeeOther, "level", "1h")
		submit(http.StatusSeeOther, "kind", "cancel", "level", "1h", "key", "customer-7")
		one, other := q.given[0], q.given[1]
		if one.Kind != deadletter.CommandRelease || one.Everything || !one.Filter.Filter.All() || !slices.Equal(one.Filter.Levels, []string{"1h"}) ||
			one.Why != "the bank is back" || one.Who != "ann (console)" || other.Kind != deadletter.CommandCancel || string(other.Filter.Filter.Key) != "customer-7" {
			t.Errorf("the consumers got %+v and %+v", one, other)
		}
		get(t, c, at, "Role", "operator").has(t, "level 1h", "key customer-7", "the bank is back")
		q.err = errSilent
		if a := ask(t, c, http.MethodPost, "/waiting", url.Values{"dlq": {"q"}, "why": {"x"}, "confirm": {"q"}, "kind": {"cancel"}, "id": {"a"}}, "Role", "operator"); a.StatusCode < 500 || strings.Contains(a.text(), "secret") {
			t.Errorf("without an answer the status is %d: %s", a.StatusCode, a.text())
		}
		want := []string{
			"ann operator release allowed", "ann operator release done", "ann operator cancel waiting allowed", "ann operator cancel waiting done",
			"ann operator cancel waiting allowed", "ann operator cancel waiting failed",
		}
		if said := slices.DeleteFunc(rec.said(), func(s string) bool { return strings.Contains(s, "forget") }); !slices.Equal(said, want) {
			t.Errorf("the record says %q", said)
		}
	})
}
