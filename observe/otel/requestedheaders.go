package otel

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"

	"github.com/redeliver/redeliver"
)

// requestedHeaders has the names of the headers that a propagator asks for. If a message has none of them, the propagator finds
// nothing, so it need not be called. The call needs a deep stack, and most messages of a service without tracing have no such
// header.
type requestedHeaders struct {
	propagator propagation.TextMapPropagator
	learned    atomic.Pointer[[]string] // if it is nil or empty, the propagator must be called
}

// findNothing reports whether the propagator would find nothing.
func (a *requestedHeaders) findNothing(headers redeliver.Headers) bool {
	if headers == nil {
		return true
	}
	names := a.learned.Load()
	if names == nil {
		names = a.learn()
	}
	for _, name := range *names {
		if headers.Get(name) != "" {
			return false
		}
	}
	return len(*names) > 0
}

// learn calls the propagator with a message without headers, to get the names. It does so at the first message, because a service
// may set OpenTelemetry's global propagator until then.
func (a *requestedHeaders) learn() *[]string {
	var names headerRecorder
	if ctx := a.propagator.Extract(context.Background(), &names); ctx != context.Background() {
		names = nil // the propagator adds something to every message
	}
	all := []string(names)
	a.learned.Store(&all)
	return &all
}

// headerRecorder is a message without headers that records which ones are requested.
type headerRecorder []string

// Get implements [propagation.TextMapCarrier].
func (l *headerRecorder) Get(name string) string {
	*l = append(*l, name)
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (*headerRecorder) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier], as carrier does.
func (*headerRecorder) Keys() []string { return nil }
