package otel

import (
	"errors"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/redeliver/redeliver/internal/observed"
)

// Config configures a [Sink]. System is required.
type Config struct {
	// System is OpenTelemetry's name of the broker: kafka, rabbitmq, aws_sqs, or another one.
	System string
	// MeterProvider creates the instruments. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// Sink converts events to metrics. Set it as Config.Sink of an adapter, alone or combined with others by
// redeliver.Sinks. It is safe for concurrent use, and one Sink may serve many clients of one broker.
type Sink struct {
	system string
	places cache[place, series]

	duration, lateness                                         metric.Float64Histogram
	consumed, committed, scheduled, postponed, dead, discarded metric.Int64Counter
	replayed, hopped, published, refused                       metric.Int64Counter
	abandoned, late, lost, ignored                             metric.Int64Counter
	stuck, impaired                                            metric.Int64Gauge
	loads                                                      loads
}

// New returns a sink. It returns an error for a Config without a System, and if the MeterProvider refuses an
// instrument.
func New(cfg Config) (*Sink, error) {
	if cfg.System == "" {
		return nil, errors.New(`otel: System is "": must be the broker: kafka, rabbitmq or aws_sqs`)
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = api.GetMeterProvider()
	}
	m := instruments{meter: cfg.MeterProvider.Meter(scope)}
	s := &Sink{
		system: cfg.System,
		duration: m.histogram("messaging.process.duration",
			"How long attempts took. redeliver.retry is false for the first one; error.type is set for those that failed: timeout, panic or error.", observed.Durations),
		lateness:  m.histogram("redeliver.retry_lateness", "How late retries began: the time from when a retry was due until its attempt began.", observed.Latenesses),
		consumed:  m.counter("messaging.client.consumed.messages", "Messages that were delivered to a handler. An immediate retry is not a delivery."),
		committed: m.counter("redeliver.committed", "Messages that were handled and acked."),
		scheduled: m.counter("redeliver.retries_scheduled", "Retries that were written to a level, by level."),
		postponed: m.counter("redeliver.postponed", "Messages that were set aside without counting an attempt, for example while a circuit breaker is open."),
		dead:      m.counter("redeliver.dead_lettered", "Messages that were written to the DLQ, by reason."),
		discarded: m.counter("redeliver.discarded", "Messages that were dropped because there is no DLQ, by reason."),
		replayed:  m.counter("redeliver.replays", "Replayed messages, by outcome: committed, or dead_lettered again."),
		hopped:    m.counter("redeliver.hops", "Messages that moved from one level to a shorter one."),
		published: m.counter("redeliver.delayed_published", "Delayed publishes that were due and were written to their topic."),
		refused:   m.counter("redeliver.publish_failures", "Writes to a level or the DLQ that the broker refused; each is tried again."),
		abandoned: m.counter("redeliver.abandoned", "Attempts that ended early because the session or the process ended. They are not counted, and their messages come back."),
		late:      m.counter("redeliver.late_answers", "Answers of handlers that came after their message was settled. They are ignored."),
		lost:      m.counter("redeliver.lost_messages", "Messages that disappeared from one of redeliver's topics, or that a share group dropped: an upper bound, or 1 if the number is unknown."),
		ignored:   m.counter("redeliver.ignored_headers", "Messages whose redeliver headers were ignored, because they are invalid or redeliver did not write them."),
		stuck:     m.gauge("redeliver.handlers_stuck", "Handlers that still run although their Timeout is over and their message was settled.", "{handler}"),
		impaired:  m.gauge("redeliver.subscription_impaired", "1 while the subscription has the problem that redeliver.trouble names, otherwise 0.", "1"),
	}
	s.places.make = s.series
	s.loads.sink = s
	s.loads.register(&m)
	if m.err != nil {
		return nil, m.err
	}
	return s, nil
}

// instruments creates instruments and collects the errors.
type instruments struct {
	meter metric.Meter
	err   error
}

func (m *instruments) counter(name, what string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithDescription(what), metric.WithUnit("{message}"))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *instruments) histogram(name, what string, buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithDescription(what), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *instruments) gauge(name, what, unit string) metric.Int64Gauge {
	g, err := m.meter.Int64Gauge(name, metric.WithDescription(what), metric.WithUnit(unit))
	m.err = errors.Join(m.err, err)
	return g
}

func (m *instruments) observable(name, what, unit string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithDescription(what), metric.WithUnit(unit))
	m.err = errors.Join(m.err, err)
	return g
}

func (m *instruments) sum(name, what string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithDescription(what), metric.WithUnit("{message}"))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *instruments) seconds(name, what string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithDescription(what), metric.WithUnit("s"))
	m.err = errors.Join(m.err, err)
	return g
}
