package console

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/redelivertest"
)

// Every link of every page leads to a page, under any prefix, and every page is accessible.
func TestEveryLinkWorksUnderAnyPrefix(t *testing.T) {
	for _, prefix := range []string{"", "/ops/dead-letters"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop(t, b, failingMessage("o-1", "card 1 declined", `{"a":1}`), failingMessage("o-2", "closed", "2"))
				c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
				form := get(t, c, page("replay", s.queue, "text", "closed")).form(t, "replay")
				form.Set("why", "a test")
				form.Set("canary", "")
				follow(t, c, "replay", form)
				b.Wait()
				mux := http.NewServeMux()
				mux.Handle(prefix+"/", http.StripPrefix(prefix, c))
				crawl(t, mux, prefix+"/")
			})
		})
	}
}

func crawl(t *testing.T, h http.Handler, start string) {
	t.Helper()
	seen := map[string]bool{start: true}
	for todo := []string{start}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		a := ask(t, h, http.MethodGet, at, nil)
		if a.StatusCode != http.StatusOK {
			t.Errorf("%s is %d: %s", at, a.StatusCode, a.text())
			continue
		}
		if a.page == nil {
			continue // a file
		}
		clean(t, at, a)
		readable(t, at, a)
		base, err := url.Parse("http://localhost" + at)
		if err != nil {
			t.Fatal(err)
		}
		a.each(func(n *node) {
			for _, name := range []string{"href", "src", "action", "data-events"} {
				ref := attr(n, name)
				if ref == "" || strings.HasPrefix(ref, "#") {
					continue
				}
				to, err := base.Parse(ref)
				if err != nil || to.Host != "localhost" || !strings.HasPrefix(to.Path, path.Dir(start+"x")) {
					t.Errorf("%s leads to %q, out of the console", at, ref)
					continue
				}
				if attr(n, "method") == "post" || n.Data == "form" || name == "data-events" {
					continue
				}
				if next := to.RequestURI(); !seen[next] && len(seen) < 300 {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		})
	}
	var pages []string
	for at := range seen {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		if name := path.Base(u.Path); !slices.Contains(pages, name) {
			pages = append(pages, name)
		}
	}
	for _, want := range []string{"dlq", "messages", "message", "payload", "tasks", "task", "replay", "purge", "edit", "console.css", "console.js"} {
		if !slices.Contains(pages, want) {
			t.Errorf("no link leads to %s; there are %v", want, pages)
		}
	}
}

// readable checks the requirements of keyboards and screen readers.
func readable(t *testing.T, at string, a *answer) {
	t.Helper()
	count := map[string]int{}
	ids := map[string]int{}
	last := 0
	a.each(func(n *node) {
		if n.Data != "title" || n.Parent.Data == "head" { // parts of an image have titles, too
			count[n.Data]++
		}
		if id := attr(n, "id"); id != "" {
			ids[id]++
		}
		switch n.Data {
		case "h1", "h2", "h3":
			level := int(n.Data[1] - '0')
			if level > last+1 {
				t.Errorf("%s has an %s behind an h%d", at, n.Data, last)
			}
			last = level
		case "input", "select", "textarea":
			if attr(n, "type") != "hidden" && !labelled(n) {
				t.Errorf("%s has a field %q without a label", at, attr(n, "name"))
			}
		case "th":
			if attr(n, "scope") == "" {
				t.Errorf("%s has a th without a scope", at)
			}
		case "nav":
			if attr(n, "aria-label") == "" {
				t.Errorf("%s has a nav without a name", at)
			}
		case "svg":
			if attr(n, "aria-hidden") != "true" && attr(n, "aria-labelledby") == "" {
				t.Errorf("%s has a picture without a text", at)
			}
		case "a", "button":
			if strings.TrimSpace(inner(n)) == "" {
				t.Errorf("%s has an empty %s", at, n.Data)
			}
		}
		for _, name := range []string{"aria-labelledby", "aria-describedby"} {
			if ref := attr(n, name); ref != "" && ids[ref] == 0 && !strings.Contains(a.body, fmt.Sprintf("id=%q", ref)) {
				t.Errorf("%s names %s by %s, which is not there", at, n.Data, ref)
			}
		}
	})
	for _, one := range []string{"h1", "main", "title", "footer"} {
		if count[one] != 1 {
			t.Errorf("%s has %d %s", at, count[one], one)
		}
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("%s has the id %s %d times", at, id, n)
		}
	}
	if !strings.Contains(a.body, `<html lang="en">`) || !strings.Contains(a.body, `href="#main"`) {
		t.Errorf("%s has no language, or no way past its head", at)
	}
}

func labelled(n *node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == "label" {
			return true
		}
	}
	return attr(n, "aria-label") != ""
}

func inner(n *node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.FirstChild == nil {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// Relative addresses need the slash after the prefix, so a request without it is redirected.
func TestAPrefixWithoutItsSlashIsRedirected(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 0)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := http.StripPrefix("/ops/dlq", c)
	a := ask(t, h, http.MethodGet, "/ops/dlq", nil)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "./dlq/" {
		t.Errorf("it is %d, to %q", a.StatusCode, a.Header.Get("Location"))
	}
	for target, want := range map[string]int{"/ops/dlq/": 200, "/ops/dlq/tasks": 200, "/ops/dlq//tasks": 404, "/ops/dlq/x/../tasks": 404} {
		if a := ask(t, h, http.MethodGet, target, nil); a.StatusCode != want {
			t.Errorf("%s is %d, to %q", target, a.StatusCode, a.Header.Get("Location"))
		}
	}
	for _, target := range []string{"/ops/dlq/", "/ops/dlq/tasks"} {
		if a := ask(t, http.StripPrefix("/ops/dlq/", c), http.MethodGet, target, nil); a.StatusCode != http.StatusOK {
			t.Errorf("with the slash taken off %s is %d", target, a.StatusCode)
		}
	}
	if a := ask(t, h, http.MethodGet, "/ops/dlq/a/b", nil); !strings.Contains(a.body, `href="../assets/`) {
		t.Error("a page below does not find its style")
	}
}
