// Package observe has what an exporter of metrics or traces implements in addition to redeliver.Sink.
//
// A redeliver.Sink gets each event of a subscription. A [CountingSink] counts most messages without events, a [LoadSink] can ask a
// subscription how many messages it has, and a [FilteringSink] does not want all events. [Sinks] combines several sinks. A
// [Tracer] puts spans around handlers. Packages observe/prom and observe/otel implement them.
package observe

import "github.com/redeliver/redeliver"

// FilteringSink is a Sink that may not want the events [redeliver.Attempted] and [redeliver.Committed], which every message has. If
// no sink wants such an event, it is not created. All other events are always reported.
type FilteringSink interface {
	redeliver.Sink
	// Wants reports whether Event should be called for events of e's type; e's fields have no meaning. It is called as Event is,
	// and before each such event.
	Wants(e redeliver.Event) bool
}

// Sinks returns a sink that passes events to several sinks, in order. It wants the events that one of them wants, so a
// [FilteringSink] also gets events that only the others want. Nil sinks are ignored.
func Sinks(sinks ...redeliver.Sink) redeliver.Sink {
	var all sinkList
	for _, s := range sinks {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

type sinkList []redeliver.Sink

// Event implements [redeliver.Sink].
func (all sinkList) Event(e redeliver.Event) {
	for _, s := range all {
		s.Event(e)
	}
}

// Wants implements [FilteringSink].
func (all sinkList) Wants(e redeliver.Event) bool {
	for _, s := range all {
		if sel, ok := s.(FilteringSink); !ok || sel.Wants(e) {
			return true
		}
	}
	return false
}
