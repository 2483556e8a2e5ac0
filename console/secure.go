package console

import (
	"context"
	"net/http"
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
	})
}

type actorKey struct{}

// actorOf is who sent a request. Nobody, where the guard has not let it in.
func actorOf(r *http.Request) Actor {
	who, _ := r.Context().Value(actorKey{}).(Actor)
	return who
}
