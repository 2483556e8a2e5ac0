package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/observe/prom"
)

// observedRow measures what metrics and unsampled traces cost for a message that succeeds.
func observedRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	return e.compare(ctx, comparison{
		ours:   []sideConfig{{side: ours, name: "metrics and tracer", messages: n, ratio: 0.9}},
		peer:   sideConfig{side: unseen, name: "neither", messages: n},
		within: 3 * time.Minute,
		spec:   func(s *spec) { s.Router, s.Observed = true, s.Side == ours },
	})
}

// observeClient gives a client Prometheus metrics beside its default sink, and a tracer that samples no span.
func observeClient(cfg *kafka.Config) error {
	metrics, err := prom.New(prom.Config{System: "kafka", Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	if cfg.Sink == nil {
		cfg.Sink = redeliver.NewSlogSink(slog.Default())
	}
	cfg.Sink = observe.Sinks(metrics, cfg.Sink)
	cfg.Tracer, err = otel.NewTracer(otel.TracerConfig{
		System: "kafka", TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())), Propagator: propagation.TraceContext{},
	})
	return err
}
