package console

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// Without authentication, requests that came through a proxy are refused, because only the proxy is known to be on this
// machine.
func TestAProxyWithoutAuthenticationIsRefused(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	users, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: as(RoleViewer)})
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	for header, value := range map[string]string{
		"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1", "X-Real-IP": "192.0.2.1", "Via": "1.1 proxy", "X-Forwarded-Host": "console.example", "x-forwarded-proto": "https",
		"CF-Connecting-IP": "192.0.2.1", "True-Client-IP": "192.0.2.1", "X-Client-IP": "192.0.2.1", "X-Cluster-Client-Ip": "192.0.2.1",
		"X-Envoy-External-Address": "192.0.2.1", "X-Original-Forwarded-For": "192.0.2.1", "Tailscale-User-Login": "eve@example.com",
		"Origin": "https://console.example.com", "Referer": "https://console.example.com/replay",
	} {
		for _, target := range []string{"/", page("dlq", newStub("q", 1)), "/tasks", "/assets/console.css"} {
			a := ask(t, c, http.MethodGet, target, nil, header, value)
			if a.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %s is %d", target, header, a.StatusCode)
			}
			a.has(t, "There is a proxy in front of this console", "--behind-proxy", "Config.Auth")
		}
		get(t, users, "/", header, value)
	}
}

// nginx's plain proxy_pass and Go's ReverseProxy add no header. Browsers behind them send the public name of the
// console, and nginx uses HTTP/1.0.
func TestAProxyThatAddsNoHeaderChangesNothing(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Audit: &auditLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	local := httptest.NewServer(c)
	defer local.Close()
	target, err := url.Parse(local.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	defer proxy.Close()
	form := url.Values{"dlq": {"q"}, "why": {"x"}, "expect": {"1"}, "confirm": {"q"}}.Encode()
	post := func(to string, headers ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to+"/purge", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	site := []string{"Sec-Fetch-Site", "same-origin", "Host", "console.example.com"}
	for _, headers := range [][]string{
		append(site, "Origin", "https://console.example.com"), append(site, "Referer", "https://console.example.com/purge?dlq=q"), append(site, "Origin", "null"),
	} {
		if status := post(proxy.URL, headers...); status != http.StatusForbidden {
			t.Errorf("through a proxy a form with %q is %d", headers, status)
		}
	}
	for _, own := range []string{local.URL, "http://localhost:8377", "http://[::1]:8377"} {
		if status := post(local.URL, "Sec-Fetch-Site", "same-origin", "Origin", own, "Referer", own+"/purge"); status == http.StatusForbidden {
			t.Errorf("a form of %s is %d", own, status)
		}
	}
	// A link on another site still works.
	get(t, c, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Referer", "https://wiki.example.com/")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Host, r.RemoteAddr, r.Proto, r.ProtoMinor = "127.0.0.1:8377", "127.0.0.1:1", "HTTP/1.0", 0
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("over HTTP/1.0 it is %d", w.Code)
	}
}
