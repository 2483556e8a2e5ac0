package console

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// A page that rebinds its name to the console's address sends requests to its own origin, with any header.
func TestAConsoleAnswersOnlyToItsHostNames(t *testing.T) {
	proxy := BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: func(string, []string) Role { return RoleOperator }})
	for name, auth := range map[string]Auth{"proxy": proxy, "custom": as(RoleOperator)} {
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: auth, Audit: &auditLog{}, Hosts: []string{"console.example.com", "[::1]"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for host, want := range map[string]int{
			"console.example.com": 200, "console.example.com:8443": 200, "CONSOLE.example.com": 200, "[::1]:8377": 200,
			"evil.example": 421, "console.example.com.evil.example": 421, "": 421, "10.0.0.7:8377": 421,
		} {
			if a := ask(t, c, http.MethodGet, "/", nil, "Host", host, "RemoteAddr", "10.1.2.3:1", "X-Forwarded-User", "ann"); a.StatusCode != want {
				t.Errorf("%s, asked for as %q: %d", name, host, a.StatusCode)
			}
		}
	}
}

// Any process on the machine can use a loopback address. Without a secret, it could claim any user.
func TestAProxyOnThisMachineNeedsASecret(t *testing.T) {
	role := func(string, []string) Role { return RoleOperator }
	for _, from := range []string{"127.0.0.1/32", "127.0.0.0/8", "::1/128", "::/1", "::ffff:127.0.0.0/104", "96.0.0.0/3"} {
		auth := BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix(from)}, Role: role})
		_, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: auth})
		if err == nil || !strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s without a secret: %v", from, err)
		}
	}
	const secret = "a-secret-of-the-proxy"
	for _, short := range []string{"short", "with spaces " + secret, secret + "\n"} {
		if _, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: role, Secret: short})}); err == nil {
			t.Errorf("the secret %q is accepted", short)
		}
	}
	rec := &auditLog{}
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Audit: rec, Auth: BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Role: role, Secret: secret})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	form := url.Values{"dlq": {"q"}, "id": {"t-1"}, "ask": {"pause"}}
	for _, header := range [][]string{nil, {"X-Proxy-Secret", ""}, {"X-Proxy-Secret", secret + "x"}, {"X-Proxy-Secret", secret, "X-Proxy-Secret", secret}} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			sent := form
			if method == http.MethodGet {
				sent = nil
			}
			if a := ask(t, c, method, "/task", sent, append(header, "X-Forwarded-User", "ann")...); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %q is %d", method, header, a.StatusCode)
			}
		}
	}
	for _, line := range rec.lines {
		if line.Action != ActionLogin || strings.Contains(line.Error, secret) {
			t.Errorf("the record has %+v", line)
		}
	}
	get(t, c, "/", "X-Proxy-Secret", secret, "X-Forwarded-User", "ann")
}

func TestTheAuditRecordHasTheForwardedAddress(t *testing.T) {
	rec := &auditLog{}
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Audit: rec, Auth: BehindProxy(ProxyConfig{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: func(string, []string) Role { return RoleReader }})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, page("message", newStub("q", 1), "at", "0"), "RemoteAddr", "10.0.0.1:9", "X-Forwarded-User", "ann", "X-Forwarded-For", "192.0.2.1, \u202e"+strings.Repeat("9", 500))
	last := rec.lines[len(rec.lines)-1]
	if last.From != "10.0.0.1:9" || !strings.HasPrefix(last.For, "192.0.2.1, ") || len(last.For) > 120 || strings.Contains(last.For, "\u202e") {
		t.Errorf("the record has %+v", last)
	}
}
