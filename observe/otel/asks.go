package otel

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"

	"github.com/redeliver/redeliver"
)

// asks has the names of the headers that a propagator reads in a message without headers. In a message that has none of
// them it finds nothing, so it need not be called. The call takes a deep stack, and most messages of a service without
// tracing have no such header.
type asks struct {
	propagator propagation.TextMapPropagator
	learned    atomic.Pointer[[]string] // if nil or empty, it must be called
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

// learn calls the propagator with a message without headers. It does so at the first message, because OpenTelemetry's
// global propagator may be set before that, and reads nothing until then.
func (a *asks) learn() *[]string {
	var names listener
	if ctx := a.propagator.Extract(context.Background(), &names); ctx != context.Background() {
		names = nil // it adds something to every message
	}
	all := []string(names)
	a.learned.Store(&all)
	return &all
}

// listener is a message without headers that records which ones are requested.
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
