package otel

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/observe"
)

var _ observe.LoadSink = (*Sink)(nil)

// Watch implements [redeliver.LoadSink]. The load of subscriptions is requested at each collection.
func (s *Sink) Watch(origin, group string, load func() observe.Load) (end func()) {
	return s.loads.Watch(origin, group, load)
}

// loads are the instruments of the load of subscriptions. Their values may be added up over processes.
type loads struct {
	observed.Loads

	sink           *Sink
	inFlight, held metric.Int64ObservableUpDownCounter
}

func (l *loads) register(m *instruments) {
	l.inFlight = m.sum("redeliver.in_flight_messages", "Messages in this process whose handler runs, or that are being written to a level or the DLQ.")
	l.held = m.sum("redeliver.held_messages", "Messages that were read and wait in this process: until they are due, for another message, or for a slot.")
	if m.err == nil {
		_, m.err = m.meter.RegisterCallback(l.collect, l.inFlight, l.held)
	}
}

func (l *loads) collect(_ context.Context, to metric.Observer) error {
	for at, load := range l.Now() {
		labels := with(l.sink.places.of(place{at.Origin, at.Group}).attrs...)
		to.ObserveInt64(l.inFlight, int64(load.InFlight), labels)
		to.ObserveInt64(l.held, int64(load.Held), labels)
	}
	return nil
}
