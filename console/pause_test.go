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

	"github.com/redeliver/redeliver"
)

// pausableStub is a DLQ whose group can be paused.
type pausableStub struct {
	*stub
	mu   sync.Mutex
	mark *redeliver.PauseMark
	err  error
}

func (q *pausableStub) set(mark *redeliver.PauseMark) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.mark = mark
	}
	return q.err
}

func (q *pausableStub) Pause(_ context.Context, reason string) error {
	return q.set(&redeliver.PauseMark{By: "root@host-7", At: time.Now(), Reason: reason})
}

func (q *pausableStub) Resume(context.Context) error { return q.set(nil) }

func (q *pausableStub) Paused(context.Context) (*redeliver.PauseMark, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mark, q.err
}

// An operator pauses and resumes the group of a DLQ. The operator gives a reason and types the DLQ's name, all pages show the pause
// to everybody, and the audit log records the actions.
func TestAGroupIsPausedAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pausableStub{stub: newStub("q", 3)}
		rec := &auditLog{}
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Auth: byHeader(), Audit: rec})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-time.After(time.Second)
		dlq := page("dlq", q)
		get(t, c, dlq, "Role", "operator").has(t, "Pause group…")
		if text := get(t, c, dlq, "Role", "reader").text(); strings.Contains(text, "Pause group…") {
			t.Error("a pause is offered to a reader")
		}
		form := get(t, c, page("pause", q), "Role", "operator")
		clean(t, page("pause", q), form)
		readable(t, page("pause", q), form)
		send := func(want int, to string, pairs ...string) {
			t.Helper()
			v := url.Values{"dlq": {"q"}, "why": {"the bank is closed"}, "confirm": {"q"}}
			for i := 0; i+1 < len(pairs); i += 2 {
				v.Set(pairs[i], pairs[i+1])
			}
			if a := ask(t, c, http.MethodPost, to, v, "Role", "operator"); a.StatusCode != want {
				t.Errorf("%s with %q is %d, want %d: %s", to, pairs, a.StatusCode, want, a.text())
			}
		}
		send(http.StatusBadRequest, "/pause", "confirm", "another")
		send(http.StatusBadRequest, "/pause", "why", " ")
		if q.mark != nil {
			t.Fatalf("it is paused: %+v", q.mark)
		}
		send(http.StatusSeeOther, "/pause")
		if q.mark == nil || q.mark.Reason != "ann (console): the bank is closed" {
			t.Errorf("the mark is %+v", q.mark)
		}
		for _, role := range []string{"viewer", "operator"} { // before the next refresh
			get(t, c, dlq, "Role", role).has(t, "The group is paused", "the bank is closed")
			get(t, c, "/", "Role", role).has(t, "group paused", "the bank is closed")
		}
		if text := get(t, c, dlq, "Role", "operator").text(); strings.Contains(text, "Pause group…") || !strings.Contains(text, "Resume the group") {
			t.Errorf("the page of a paused group says %s", text)
		}
		if text := get(t, c, dlq, "Role", "reader").text(); strings.Contains(text, "Resume the group") {
			t.Error("a resume is offered to a reader")
		}
		send(http.StatusSeeOther, "/resume")
		if text := get(t, c, dlq, "Role", "operator").text(); strings.Contains(text, "The group is paused") {
			t.Errorf("the page of a resumed group says %s", text)
		}
		if err := q.set(&redeliver.PauseMark{Reason: "made by hand"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Minute)
		get(t, c, dlq, "Role", "viewer").has(t, "made by hand (by hand)")
		q.mu.Lock()
		q.err = errors.New("access refused for amqp://ann:secret@rabbit")
		q.mu.Unlock()
		send(http.StatusBadGateway, "/pause")
		<-time.After(2 * time.Minute)
		get(t, c, dlq, "Role", "operator").has(t, "Whether the group is paused is not known: access refused")
		if text := get(t, c, dlq, "Role", "operator").text(); strings.Contains(text, "secret") {
			t.Errorf("the page shows a password: %s", text)
		}
		want := []string{
			"ann operator pause group allowed", "ann operator pause group done", "ann operator resume group allowed", "ann operator resume group done",
			"ann operator pause group allowed", "ann operator pause group failed",
		}
		if said := rec.said(); !slices.Equal(said, want) {
			t.Errorf("the record says %q", said)
		}
	})
}
