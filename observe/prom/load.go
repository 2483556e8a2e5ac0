package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver/internal/observed"
	"github.com/redeliver/redeliver/observe"
)

var _ observe.LoadSink = (*Sink)(nil)

// Watch implements [redeliver.LoadSink]. The load of subscriptions is requested at each scrape.
func (s *Sink) Watch(origin, group string, load func() observe.Load) (end func()) {
	return s.loads.Watch(origin, group, load)
}

// loads is the collector of the load of subscriptions.
type loads struct {
	observed.Loads

	inFlight, held *prometheus.Desc
}

func newLoads(of prometheus.Labels) *loads {
	labels := []string{"origin", "group"}
	return &loads{
		inFlight: prometheus.NewDesc("redeliver_in_flight_messages", "Messages in this process whose handler runs, or that are being written to a level or the DLQ.", labels, of),
		held:     prometheus.NewDesc("redeliver_held_messages", "Messages that were read and wait in this process: until they are due, for another message, or for a slot.", labels, of),
	}
}

// Describe implements [prometheus.Collector].
func (l *loads) Describe(to chan<- *prometheus.Desc) {
	to <- l.inFlight
	to <- l.held
}

// Collect implements [prometheus.Collector].
func (l *loads) Collect(to chan<- prometheus.Metric) {
	for at, load := range l.Now() {
		to <- gauge(l.inFlight, float64(load.InFlight), at.Origin, at.Group)
		to <- gauge(l.held, float64(load.Held), at.Origin, at.Group)
	}
}
