package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Guessing passwords must be slow and leave a trace.
func TestFailedLoginsAreRecordedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &auditLog{}
		users := Basic(User{Name: "ann", Password: "a long password", Role: RoleOperator}, User{Name: "bob", Password: "another password", Role: RoleViewer})
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: users, Audit: rec})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		get := func(name, password, from string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth(name, password)
			return ask(t, c, http.MethodGet, "/", nil, "Authorization", r.Header.Get("Authorization"), "RemoteAddr", from).StatusCode
		}
		for i := range 10 {
			if status := get("ann", fmt.Sprint("guess ", i), fmt.Sprint("192.0.2.1:", 1000+i)); status != http.StatusUnauthorized {
				t.Fatalf("guess %d is %d", i, status)
			}
		}
		if said := rec.said(); !slices.Equal(said, slices.Repeat([]string{"ann  login denied"}, 10)) || rec.lines[0].From != "192.0.2.1:1000" {
			t.Fatalf("the record says %q", said)
		}
		if end := rec.lines[9].Error; !strings.Contains(end, "10 failed") {
			t.Errorf("the last line says %q", end)
		}
		// The response is the same for a right and a wrong password, and the record does not grow.
		for _, password := range []string{"guess 11", "a long password"} {
			if status := get("ann", password, "192.0.2.1:2000"); status != http.StatusTooManyRequests {
				t.Errorf("after 10 failures %q is %d", password, status)
			}
		}
		if n := len(rec.said()); n != 10 {
			t.Errorf("the record has %d lines", n)
		}
		for _, other := range [][2]string{{"ann", "198.51.100.1:1"}, {"bob", "192.0.2.1:1"}} {
			password := map[string]string{"ann": "a long password", "bob": "another password"}[other[0]]
			if status := get(other[0], password, other[1]); status != http.StatusOK {
				t.Errorf("%s from %s is %d", other[0], other[1], status)
			}
		}
		<-time.After(time.Minute) // fake time of the bubble
		if status := get("ann", "a long password", "192.0.2.1:3000"); status != http.StatusOK {
			t.Errorf("a minute later it is %d", status)
		}
		// An unknown name may be a password in the wrong field.
		get("my secret password", "", "192.0.2.1:1")
		if last := rec.lines[len(rec.lines)-1]; last.Who != "" || last.Result != denied {
			t.Errorf("of an unknown user the record says %+v", last)
		}
		// A browser's first request without a password is not a failure.
		if a := ask(t, c, http.MethodGet, "/", nil); a.StatusCode != http.StatusUnauthorized || len(rec.said()) != 11 {
			t.Errorf("without a password the status is %d, and the record has %d lines", a.StatusCode, len(rec.said()))
		}
	})
}

// The error of a service's own login may contain its hosts and credentials.
func TestTheErrorOfALoginIsNotShown(t *testing.T) {
	rec := &auditLog{}
	login := Custom(func(*http.Request) (Actor, error) {
		return Actor{}, errors.New("asking the directory: dial ldap://svc:hunter22@ldap.internal:389: password authentication failed at 10.1.2.3")
	})
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: login, Audit: rec})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100 {
		a := ask(t, c, http.MethodGet, "/", nil)
		if a.StatusCode != http.StatusForbidden || strings.Contains(a.body, "ldap") || strings.Contains(a.body, "10.1.2.3") {
			t.Fatalf("an unknown user gets %d: %s", a.StatusCode, a.text())
		}
		a.has(t, "No access")
	}
	if len(rec.lines) == 0 || len(rec.lines) > 10 {
		t.Fatalf("the record has %d lines, want some of 100", len(rec.lines))
	}
	if said := rec.lines[0].Error; strings.Contains(said, "hunter22") || !strings.Contains(said, "ldap.internal:389") {
		t.Errorf("the record says %q, want the error without its password", said)
	}
}

// Someone who guesses names learns of none, whether or not a user has it: the answers are the same, also when many passwords were wrong.
// All names that a network tries have one more bound, so that many names do not make those of others be forgotten.
func TestALoginTellsNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := Basic(User{Name: "ann", Password: "a long password", Role: RoleOperator})
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: users, Audit: &auditLog{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		try := func(name, from string) string {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth(name, "a wrong password")
			a := ask(t, c, http.MethodGet, "/", nil, "Authorization", r.Header.Get("Authorization"), "RemoteAddr", from)
			return fmt.Sprint(a.StatusCode, a.Header, a.body)
		}
		for i := range 12 {
			if known, unknown := try("ann", "192.0.2.1:1"), try("eve", "192.0.2.1:1"); known != unknown {
				t.Fatalf("guess %d: a user's name gets %s, another name %s", i, known, unknown)
			}
		}
		if unknown := try("mallory", "192.0.2.1:1"); !strings.HasPrefix(unknown, "401") {
			t.Errorf("the first guess of another name gets %s", unknown)
		}
		for i := range 2 * maxFailureKeys {
			try(fmt.Sprint("name ", i), "192.0.2.2:1")
		}
		if known := try("ann", "192.0.2.1:1"); !strings.HasPrefix(known, "429") {
			t.Errorf("after many other names the count of ann is forgotten: %s", known)
		}
	})
}
