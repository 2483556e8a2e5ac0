package sidecar

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// Extensions lets programs extend attempts. It serves [ExtendPath]: each attempt has a URL, which only its program
// knows, and a POST to it extends the attempt.
type Extensions struct {
	base string

	mu      sync.Mutex
	running map[string]extensible // by token
}

// extensible is a running attempt.
type extensible struct {
	by     time.Duration // the default
	extend func(by time.Duration) error
}

// ExtendPath is the pattern of the URLs.
const ExtendPath = "POST /extend/{token}"

// NewExtensions returns the extensions of all subscriptions of a process. Serve them at the address that Listening gets.
func NewExtensions() *Extensions {
	return &Extensions{running: make(map[string]extensible)}
}

// Listening sets the address at which the URLs are served. Call it before Run. If address has no host, as in :8081, the
// URLs have 127.0.0.1, for programs on the same host or in the same pod.
func (e *Extensions) Listening(address string) {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	e.base = "http://" + address + "/extend/"
}

// begin returns the URL of an attempt until end is called. A POST extends it by the default by, unless it says otherwise.
// Without extensions the URL is empty.
func (e *Extensions) begin(ctx context.Context, by time.Duration) (url string, end func()) {
	if e == nil {
		return "", func() {}
	}
	token := rand.Text()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[token] = extensible{by, func(by time.Duration) error { return redeliver.Extend(ctx, by) }}
	return e.base + token, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.running, token)
	}
}

// ServeHTTP extends the attempt of a URL.
func (e *Extensions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	attempt, ok := e.running[r.PathValue("token")]
	e.mu.Unlock()
	by := attempt.by
	if text := r.URL.Query().Get("for"); text != "" {
		var err error
		if by, err = time.ParseDuration(text); err != nil || by <= 0 {
			http.Error(w, "for must be a duration, such as 90s", http.StatusBadRequest)
			return
		}
	}
	if !ok {
		http.Error(w, "no such attempt runs", http.StatusNotFound)
		return
	}
	if err := attempt.extend(by); err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
