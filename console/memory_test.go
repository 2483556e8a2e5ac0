package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// A message of 1 MB can have 60,000 headers. A page that shows 100 of them copies and redacts no others.
func TestAPageCopiesOnlyTheShownHeaders(t *testing.T) {
	const headers = 60_000
	q := newStub("q", 1)
	makeOne := q.make
	q.make = func(i int64) *deadletter.Message {
		m := makeOne(i)
		for n := range headers {
			m.Headers = append(m.Headers, deadletter.Header{Name: fmt.Sprint("h", n), Value: []byte("v")})
		}
		return m
	}
	var asked atomic.Int64
	c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: &auditLog{}, Redact: func(p Part) ([]byte, error) {
		if p.Kind == PartHeader {
			asked.Add(1)
		}
		return p.Value, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, page("message", q, "at", "0")).has(t, "59,900 more")
	if n := asked.Load(); n != maxHeaders {
		t.Errorf("the redactor was asked for %d headers", n)
	}
	if a := ask(t, c, http.MethodGet, page("edit", q, "at", "0"), nil); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.text(), "60,000 headers") {
		t.Errorf("editing it is %d: %s", a.StatusCode, a.text())
	}
}

// A form with too many fields is not reported as an error of the broker.
func TestAFormWithTooManyFieldsIsInvalidInput(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Audit: &auditLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	form := url.Values{"dlq": {"q"}}
	for n := range 10_001 {
		form.Set(fmt.Sprint("f", n), "x")
	}
	for _, to := range []string{"/replay", "/purge", "/edit", "/task", "/causes", "/waiting"} {
		if a := ask(t, c, http.MethodPost, to, form); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is %d", to, a.StatusCode)
		}
	}
}
