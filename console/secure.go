package console

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy of every page: nothing but our own style,
// script and icon, nothing inline, in nobody's frame.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm bounds what is posted: an edited message and what is around it.
const maxForm = 8 << 20

// guard is around all pages: headers, where a request came from, and who sent it.
func (c *Console) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would make the origin of our own forms "null"
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil && !strings.Contains(strings.Trim(r.Host, "[]"), ":") {
			h.Set("Strict-Transport-Security", "max-age=31536000") // with a port, it would bind others of that name, too
		}
		if !c.named(r.Host) {
			c.problem(w, r, http.StatusMisdirectedRequest, "This console has another name", "It does not answer to the name by which it was asked for. --host, or Config.Hosts, has its names.")
			return
		}
		if r, ok := fromHere(r); ok {
			c.serve(next, w, r, origin)
			return
		}
		c.problem(w, r, http.StatusForbidden, "Another site asked for this",
			"The browser says that a page of another site has asked, and not a link on which somebody has clicked. Nothing was looked at.")
	})
}

// serve authenticates a request and answers it.
func (c *Console) serve(next http.Handler, w http.ResponseWriter, r *http.Request, origin *http.CrossOriginProtection) {
	if origin.Check(r) != nil {
		c.problem(w, r, http.StatusForbidden, "This came from another site",
			"The browser says that the form was sent by another site than this one. Nothing was done.")
		return
	}
	who, ok := c.letIn(w, r)
	if !ok {
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, who)))
}

// named reports whether a request asks for the console by a name of its own.
func (c *Console) named(host string) bool {
	return len(c.cfg.Hosts) == 0 || slices.ContainsFunc(c.cfg.Hosts, func(own string) bool { return strings.EqualFold(withoutPort(own), withoutPort(host)) })
}

// withoutPort is the name in a Host header.
func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// fromHere reports whether a GET may be answered: some of them are recorded, and some cost something, and each
// site may make a browser send them. A link from another site leads to a page, without the look to which only
// our own page agrees. A request without these headers comes from a program.
func fromHere(r *http.Request) (*http.Request, bool) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "cross-site" && site != "same-site" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return r, true // CrossOriginProtection decides about the other methods
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

// actorOf is who sent a request. Nobody, where the guard has not let it in.
func actorOf(r *http.Request) Actor {
	who, _ := r.Context().Value(actorKey{}).(Actor)
	return who
}
