package console

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy of every page. It allows only the console's own style, script and icon, nothing
// inline, and no framing.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm is the maximum size in bytes of a form: an edited message and its other fields.
const maxForm = 8 << 20

// guard wraps all pages. It sets headers, checks where a request came from, and authenticates its sender.
func (c *Console) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would set the origin of our own forms to "null"
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil && !strings.Contains(strings.Trim(r.Host, "[]"), ":") {
			h.Set("Strict-Transport-Security", "max-age=31536000") // not with a port: HSTS holds for the whole host
		}
		if !c.hasHost(r.Host) {
			c.showProblem(w, r, http.StatusMisdirectedRequest, "Unknown host name", "The console does not accept requests for this host name. --host, or Config.Hosts, lists its names.")
			return
		}
		if r, ok := allowGET(r); ok {
			c.serveAuthenticated(next, w, r, origin)
			return
		}
		c.showProblem(w, r, http.StatusForbidden, "This came from another site",
			"According to the browser, a page of another site sent this request, not a link that somebody clicked. The console did nothing.")
	})
}

// serveAuthenticated authenticates a request and answers it.
func (c *Console) serveAuthenticated(next http.Handler, w http.ResponseWriter, r *http.Request, origin *http.CrossOriginProtection) {
	if origin.Check(r) != nil {
		c.showProblem(w, r, http.StatusForbidden, "This came from another site",
			"According to the browser, a page of another site sent this form. The console did nothing.")
		return
	}
	who, ok := c.authenticate(w, r)
	if !ok {
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, who)))
}

// hasHost reports whether the host of a request is one of the console's.
func (c *Console) hasHost(host string) bool {
	return len(c.cfg.Hosts) == 0 || slices.ContainsFunc(c.cfg.Hosts, func(own string) bool { return strings.EqualFold(withoutPort(own), withoutPort(host)) })
}

// withoutPort returns the host name of a Host header.
func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// allowGET reports whether a request may be answered, and returns it. Some GETs are recorded or cost something, and any
// site can make a browser send them. For a link from another site, allowGET removes the agreement to a costly read. A
// request without Sec-Fetch headers comes from a program.
func allowGET(r *http.Request) (*http.Request, bool) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "cross-site" && site != "same-site" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return r, true // CrossOriginProtection checks the other methods
	}
	if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" || r.URL.Path == "/payload" {
		return r, false
	}
	if q := r.URL.Query(); q.Has("look") {
		q.Del("look")
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	return r, true
}

type actorKey struct{}

// actorOf returns the sender of a request. It is the zero Actor if the guard has not authenticated one.
func actorOf(r *http.Request) Actor {
	who, _ := r.Context().Value(actorKey{}).(Actor)
	return who
}
