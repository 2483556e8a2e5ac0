// Package prom exports Prometheus metrics: attempts, retries by level with their lateness, and dead letters by reason.
// A [Sink] counts the events of a client. [NewDLQs] and [NewWaiting] ask the broker at a scrape for values that no
// event reports: the number and age of dead letters, and how many messages wait.
//
// Labels are the origin, the group, the level, the reason, and whether an attempt failed by its timeout, a panic or an
// error. No label comes from a message. Names follow OpenTelemetry's messaging conventions if these exist; other
// names begin with "redeliver_". docs/reference/metrics.md lists them, observe/alerts has rules, and observe/grafana
// has a dashboard.
package prom

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver/internal/observed"
)

// Config configures a [Sink]. System is required.
type Config struct {
	// System is OpenTelemetry's name of the broker: kafka, rabbitmq, aws_sqs, or another one.
	System string
	// Registerer registers the metrics. Default prometheus.DefaultRegisterer.
	Registerer prometheus.Registerer
	// Buckets are those of messaging_process_duration_seconds. Default: the advice of OpenTelemetry, 5 ms to 10 s.
	Buckets []float64
	// LatenessBuckets are those of redeliver_retry_lateness_seconds. Default: 1 ms to 1 h.
	LatenessBuckets []float64
}

// Sink counts events. Set it as Config.Sink of an adapter, alone or combined with others by redeliver.Sinks. It is safe
// for concurrent use, and one Sink may serve many clients of one broker.
type Sink struct {
	duration  *prometheus.HistogramVec
	lateness  *prometheus.HistogramVec
	committed *prometheus.CounterVec
	scheduled *prometheus.CounterVec
	postponed *prometheus.CounterVec
	dead      *prometheus.CounterVec
	discarded *prometheus.CounterVec
	replayed  *prometheus.CounterVec
	hopped    *prometheus.CounterVec
	published *prometheus.CounterVec
	refused   *prometheus.CounterVec
	abandoned *prometheus.CounterVec
	lost      *prometheus.CounterVec
	late      *prometheus.CounterVec
	ignored   *prometheus.CounterVec
	stuck     *prometheus.GaugeVec
	impaired  *prometheus.GaugeVec

	loads *loads

	mu    sync.RWMutex
	known map[place]*series
}

// New returns a sink and registers its metrics. It returns an error for a Config without a System, and if the
// Registerer refuses a metric.
func New(cfg Config) (*Sink, error) {
	if cfg.System == "" {
		return nil, errors.New(`prom: System is "": must be the broker: kafka, rabbitmq or aws_sqs`)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.DefaultRegisterer
	}
	if cfg.Buckets == nil {
		cfg.Buckets = observed.Durations
	}
	if cfg.LatenessBuckets == nil {
		cfg.LatenessBuckets = observed.Latenesses
	}
	of := prometheus.Labels{"messaging_system": cfg.System}
	var all []prometheus.Collector
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: of}, append([]string{"origin", "group"}, more...))
		all = append(all, v)
		return v
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: of}, append([]string{"origin", "group"}, more...))
		all = append(all, v)
		return v
	}
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: of, Buckets: buckets}, append([]string{"origin", "group"}, more...))
		all = append(all, v)
		return v
	}
	s := &Sink{
		known: make(map[place]*series),
		duration: histogram("messaging_process_duration_seconds",
			"How long attempts took. retry is false for the first one; error_type is empty for those that succeeded, otherwise timeout, panic or error.",
			cfg.Buckets, "retry", "error_type"),
		lateness: histogram("redeliver_retry_lateness_seconds",
			"How late retries began: the time from when a retry was due until its attempt began.", cfg.LatenessBuckets),
		committed: counter("redeliver_committed_total", "Messages that were handled and acked."),
		scheduled: counter("redeliver_retries_scheduled_total", "Retries that were written to a level, by level.", "level"),
		postponed: counter("redeliver_postponed_total", "Messages that were set aside without counting an attempt, for example while a circuit breaker is open."),
		dead:      counter("redeliver_dead_lettered_total", "Messages that were written to the DLQ, by reason.", "reason"),
		discarded: counter("redeliver_discarded_total", "Messages that were dropped because there is no DLQ, by reason.", "reason"),
		replayed:  counter("redeliver_replays_total", "Replayed messages, by outcome: committed, or dead_lettered again.", "outcome"),
		hopped:    counter("redeliver_hops_total", "Messages that moved from one level to a shorter one."),
		published: counter("redeliver_delayed_published_total", "Delayed publishes that were due and were written to their topic."),
		refused:   counter("redeliver_publish_failures_total", "Writes to a level or the DLQ that the broker refused; each is tried again."),
		abandoned: counter("redeliver_abandoned_total", "Attempts that ended early because the session or the process ended. They are not counted, and their messages come back."),
		lost:      counter("redeliver_lost_messages_total", "Messages that disappeared from one of redeliver's topics, or that a share group dropped: an upper bound, or 1 if the number is unknown."),
		late:      counter("redeliver_late_answers_total", "Answers of handlers that came after their message was settled. They are ignored."),
		ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "redeliver_ignored_headers_total", Help: "Messages whose redeliver headers were ignored, because they are invalid or redeliver did not write them.", ConstLabels: of,
		}, []string{"topic"}),
		stuck:    gauge("redeliver_handlers_stuck", "Handlers that still run although their Timeout is over and their message was settled."),
		loads:    newLoads(of),
		impaired: gauge("redeliver_subscription_impaired", "1 while the subscription has the problem that the label trouble names, otherwise 0.", "trouble"),
	}
	all = append(all, s.ignored, s.loads)
	for i, c := range all {
		if err := cfg.Registerer.Register(c); err != nil {
			for _, c := range all[:i] {
				cfg.Registerer.Unregister(c)
			}
			return nil, err
		}
	}
	return s, nil
}
