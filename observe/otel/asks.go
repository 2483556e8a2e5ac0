package otel

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"

	"github.com/redeliver/redeliver"
)

// asks is the headers that a propagator asks for where there are none at all. A message
// that has none of them is one that it finds nothing in, and it need not be asked about
// it: that takes a deep stack, and most messages of a service that is not traced have
// none.
type asks struct {
	propagator propagation.TextMapPropagator
	learned    atomic.Pointer[[]string] // nil or none: it must be asked
}

// none reports whether the propagator would find nothing.
func (a *asks) none(headers redeliver.Headers) bool {
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

// learn shows the propagator a message without headers. It is done with the first message:
// OpenTelemetry's global one may be set before that, and reads nothing until then.
func (a *asks) learn() *[]string {
	var names listener
	if ctx := a.propagator.Extract(context.Background(), &names); ctx != context.Background() {
		names = nil // it has something to say of any message
	}
	all := []string(names)
	a.learned.Store(&all)
	return &all
}

// listener is a message without headers that notes what it is asked for.
type listener []string

// Get implements [propagation.TextMapCarrier].
func (l *listener) Get(name string) string {
	*l = append(*l, name)
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (*listener) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier], as carrier does.
func (*listener) Keys() []string { return nil }
