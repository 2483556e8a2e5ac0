package console

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/redelivertest"
)

// hostile is text that could end a page, or add an element, an attribute or a script.
const hostile = `"'></script></pre></textarea></title><img src=x onerror=alert(1)><script>alert(2)</script><a href="javascript:alert(3)" style="x" hostile>{{.}}` + "\u202e\x1b[31m\x00"

// A message never adds an element or an attribute to a page.
func TestAMessageFullOfMarkupIsText(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		msg := message.NewMessage("id"+hostile, []byte(`{"a":"`+strings.ReplaceAll(hostile, `"`, `\"`)+`"}`))
		msg.Metadata.Set("fails", "error"+hostile)
		msg.Metadata.Set("name"+hostile, "value"+hostile)
		redelivertest.SetKey(msg, "key"+hostile)
		s := newShop(t, b, msg)
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		key := s.queue.Info().DLQ
		s.mend()
		task := ask(t, c, "POST", "/replay", url.Values{"dlq": {key}, "why": {"why" + hostile}, "type": {"none" + hostile}})
		if task.StatusCode != http.StatusSeeOther {
			t.Fatal(task.text())
		}
		b.Wait()
		b.Wait()
		for _, target := range []string{
			"/", page("dlq", s.queue), page("messages", s.queue, "text", "error"), page("messages", s.queue, "key", hostile, "header", hostile, "value", hostile, "type", hostile, "id", hostile),
			page("message", s.queue, "at", "0"), page("edit", s.queue, "at", "0"), page("replay", s.queue, "text", hostile, "why", hostile, "canary", hostile),
			page("purge", s.queue, "text", hostile), "/tasks", "/" + task.Header.Get("Location"), "/dlq?dlq=" + url.QueryEscape(hostile),
			page("message", s.queue, "at", hostile), "/?note=" + url.QueryEscape(hostile), page("messages", s.queue, "after", hostile),
		} {
			a := ask(t, c, "GET", target, nil)
			if a.page == nil {
				t.Errorf("%s is not a page", target)
				continue
			}
			clean(t, target, a)
		}
		// The markup is on the page, as text.
		a := get(t, c, page("message", s.queue, "at", "0"))
		a.has(t, `<img src=x onerror=alert(1)>`, `\u202e`, `\u001b[31m`)
		if strings.ContainsAny(a.body, "\u202e\x1b\x00") {
			t.Error("characters that cannot be seen are there as they are")
		}
	})
}

// clean checks that a page contains only elements and attributes of its template.
func clean(t *testing.T, target string, a *answer) {
	t.Helper()
	known := []string{"html", "head", "body", "meta", "title", "link", "script", "a", "header", "nav", "p", "span", "div", "main", "footer", "time", "h1", "h2", "h3",
		"svg", "path", "rect", "table", "thead", "tbody", "tr", "th", "td", "br", "code", "pre", "strong", "section", "dl", "dt", "dd", "ul", "ol", "li", "details", "summary",
		"form", "input", "select", "option", "label", "button", "textarea", "fieldset", "legend", "figure", "figcaption", "progress", "ins", "del", "kbd"}
	a.each(func(n *node) {
		if !slices.Contains(known, n.Data) {
			t.Errorf("%s has an element <%s>", target, n.Data)
		}
		for _, at := range n.Attr {
			if strings.HasPrefix(at.Key, "on") || at.Key == "style" || at.Key == "hostile" || strings.ContainsAny(at.Key, `"'<>`) {
				t.Errorf("%s has <%s %s=%q>", target, n.Data, at.Key, at.Val)
			}
			if strings.Contains(strings.ToLower(at.Val), "javascript:") && (at.Key == "href" || at.Key == "src" || at.Key == "action") {
				t.Errorf("%s has <%s %s=%q>", target, n.Data, at.Key, at.Val)
			}
		}
		if n.Data == "script" && (n.FirstChild != nil || !strings.Contains(attr(n, "src"), "assets/console.js")) {
			t.Errorf("%s has a script of its own", target)
		}
	})
}

// Every response has the headers, including errors and refusals.
func TestEveryAnswerHasThePolicy(t *testing.T) {
	q := newStub("q", 1)
	c, err := New(Config{Queues: []Queue{{Queue: q}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, target := range []string{"/", page("dlq", q), page("message", q, "at", "0"), page("payload", q, "at", "0"), "/none", "/assets/console.js", "/dlq?dlq=none"} {
		for _, from := range []string{"127.0.0.1:1", "192.0.2.1:1"} {
			a := ask(t, c, "GET", target, nil, "RemoteAddr", from)
			csp := a.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("%s from %s has the policy %q", target, from, csp)
				}
			}
			if strings.Contains(csp, "unsafe") || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s from %s has %v", target, from, a.Header)
			}
			if (a.StatusCode == http.StatusForbidden) != (from != "127.0.0.1:1") {
				t.Errorf("%s from %s is %d", target, from, a.StatusCode)
			}
		}
	}
}

// A browser that has used TLS must use it again. If the address has a port, other servers of the machine share the host
// name and may not have TLS.
func TestABrowserMustKeepTLS(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for target, want := range map[string]string{
		"https://localhost/": "max-age=31536000", "https://localhost/none": "max-age=31536000",
		"https://localhost:8377/": "", "https://[::1]:8377/": "", "http://localhost/": "",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		r.RemoteAddr = "127.0.0.1:40000"
		c.ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("%s has %q, want %q", target, got, want)
		}
	}
}

func TestFormsOfAnotherSiteAreRefused(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, failingMessage("o-1", "closed", "1"))
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}})
		key := s.queue.Info().DLQ
		form := url.Values{"dlq": {key}, "why": {"x"}, "expect": {"1"}, "confirm": {key}}
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, {"Sec-Fetch-Site", "", "Origin", "null"}} {
			for _, to := range []string{"/purge", "/replay", "/edit", "/task"} {
				r := ask(t, withHeaders(c, header), "POST", to, form)
				if r.StatusCode != http.StatusForbidden {
					t.Errorf("POST %s with %q is %d", to, header, r.StatusCode)
				}
				r.has(t, "This came from another site")
			}
		}
		if n := len(s.orders.DeadLetters()); n != 1 {
			t.Errorf("%d dead letters are left", n)
		}
		// No web page reaches the console under a name of its own that resolves to 127.0.0.1.
		if a := ask(t, c, "GET", "/", nil, "Host", "evil.example:8377"); a.StatusCode != http.StatusForbidden {
			t.Errorf("asked for by another name it is %d", a.StatusCode)
		}
		for _, host := range []string{"localhost", "127.0.0.1:8377", "[::1]:8377"} {
			if a := ask(t, c, "GET", "/", nil, "Host", host); a.StatusCode != http.StatusOK {
				t.Errorf("asked for as %s it is %d", host, a.StatusCode)
			}
		}
	})
}

// withHeaders sets headers as a browser on another site would.
func withHeaders(h http.Handler, pairs []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(pairs); i += 2 {
			r.Header.Del(pairs[i])
			if pairs[i+1] != "" {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
		h.ServeHTTP(w, r)
	})
}

func TestAPublicAddressIsRefused(t *testing.T) {
	users := Basic(User{Name: "ann", Password: "a long password", Role: RoleOperator})
	proxy := BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: func(string, []string) Role { return RoleViewer }})
	public, loopback := &net.TCPAddr{IP: net.IPv4zero, Port: 1}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	for name, row := range map[string]struct {
		auth    Auth
		at      net.Addr
		tls     bool
		refused bool
	}{
		"no authentication, loopback": {Auth{}, loopback, false, false},
		"no authentication, public":   {Auth{}, public, false, true},
		"no authentication, TLS":      {Auth{}, public, true, true},
		"passwords, loopback":         {users, loopback, false, false},
		"passwords, public":           {users, public, false, true},
		"passwords, public, TLS":      {users, public, true, false},
		"behind a proxy, public":      {proxy, public, false, false},
		"the service's own, public":   {as(RoleViewer), public, false, false},
	} {
		c := &Console{cfg: Config{Auth: row.auth}}
		if err := c.mayListen(row.at, row.tls); (err != nil) != row.refused || row.refused && !errors.Is(err, ErrPublic) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 0)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := func(url string) {
		t.Errorf("it listens on %s", url)
		cancel()
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if err := c.ListenAndServe(ctx, ServeConfig{Address: address, Ready: ready}); !errors.Is(err, ErrPublic) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestPasswordsAndProxiesIdentifyUsers(t *testing.T) {
	users := Basic(User{Name: "ann", Password: "a long password", Role: RoleOperator}, User{Name: "bob", Password: "another password", Role: RoleViewer})
	proxy := BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: func(user string, groups []string) Role {
		switch {
		case slices.Contains(groups, "ops"):
			return RoleOperator
		case user == "guest":
			return 0
		default:
			return RoleViewer
		}
	}})
	for name, row := range map[string]struct {
		auth  Auth
		set   func(*http.Request)
		want  Role
		login bool
	}{
		"no password":      {users, func(*http.Request) {}, 0, true},
		"a wrong password": {users, func(r *http.Request) { r.SetBasicAuth("ann", "a long passwore") }, 0, true},
		"another's":        {users, func(r *http.Request) { r.SetBasicAuth("ann", "another password") }, 0, true},
		"an unknown user":  {users, func(r *http.Request) { r.SetBasicAuth("eve", "") }, 0, true},
		"ann":              {users, func(r *http.Request) { r.SetBasicAuth("ann", "a long password") }, RoleOperator, false},
		"bob":              {users, func(r *http.Request) { r.SetBasicAuth("bob", "another password") }, RoleViewer, false},
		"proxy, elsewhere": {proxy, func(r *http.Request) { r.Header.Set("X-Forwarded-User", "ann"); r.RemoteAddr = "11.0.0.1:1" }, 0, false},
		"proxy, nobody":    {proxy, func(*http.Request) {}, 0, false},
		"proxy, ann":       {proxy, func(r *http.Request) { r.Header.Set("X-Forwarded-User", "ann") }, RoleViewer, false},
		"proxy, ops": {proxy, func(r *http.Request) {
			r.Header.Set("X-Forwarded-User", "ann")
			r.Header.Set("X-Forwarded-Groups", "dev, ops")
		}, RoleOperator, false},
		"proxy, no role":                {proxy, func(r *http.Request) { r.Header.Set("X-Forwarded-User", "guest") }, 0, false},
		"proxy, said twice":             {proxy, func(r *http.Request) { r.Header["X-Forwarded-User"] = []string{"ann", "eve"} }, 0, false},
		"proxy, a name with a line end": {proxy, func(r *http.Request) { r.Header.Set("X-Forwarded-User", "ann\nops") }, 0, false},
		"proxy, mapped":                 {proxy, func(r *http.Request) { r.Header.Set("X-Forwarded-User", "ann"); r.RemoteAddr = "[::ffff:10.0.0.1]:1" }, RoleViewer, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "10.1.2.3:4"
		row.set(r)
		who, err := row.auth.authenticate(r)
		if who.Role != row.want || (err != nil) != (row.want == 0) || errors.Is(err, ErrLogin) != row.login {
			t.Errorf("%s is %q, %s: %v", name, who.Name, who.Role, err)
		}
	}
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 0)}}, Auth: users})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a := ask(t, c, "GET", "/", nil); a.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("without a password the status is %d, %v", a.StatusCode, a.Header)
	}
}

// The service checks roles, redacts and records. A page with access to a queue could bypass it.
func TestOnlyTheServiceHasQueues(t *testing.T) {
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	does := []string{"Replay", "Resume", "Pause", "Cancel", "Edit", "Purge", "Browse", "Find", "Groups", "DryRun", "History", "Lookup", "Export", "Import"}
	seen := 0
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		isService := strings.HasPrefix(name, "service") || name == "poll.go"
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := sel.X.(*ast.Ident)
			if ok && of.Name == "deadletter" && slices.Contains(does, sel.Sel.Name) {
				seen++
				if !isService {
					t.Errorf("%s calls deadletter.%s; only the service may", name, sel.Sel.Name)
				}
			}
			if inner, ok := sel.X.(*ast.SelectorExpr); ok && inner.Sel.Name == "q" && !isService {
				t.Errorf("%s calls a queue's %s; only the service may", name, sel.Sel.Name)
			}
			return true
		})
	}
	if seen < len(does)/2 {
		t.Errorf("%d calls were seen: this test does not look at the right files", seen)
	}
}
