package otel_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/observe/prom"
)

// success returns a function that handles and commits one message, with a handler behind Retry.
func success(tb testing.TB, o observer) func() {
	tb.Helper()
	q := enginetest.New(redeliver.Policy{Timeout: time.Minute})
	q.Sub.Sink, q.Sub.Tracer = o.sink, o.tracer
	if o.published {
		// The publisher's span was not sampled either.
		q.Metadata = message.Metadata{"traceparent": strings.TrimSuffix(publisher, "1") + "0"}
	}
	q.Start(tb)
	h := middleware.Retry()(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	return func() {
		msg := q.Deliver()
		if _, err := h(msg); err != nil {
			tb.Error(err)
		}
		msg.Ack()
		q.WaitSettled(1)
	}
}

// unsampledTracer returns a tracer that samples no span.
func unsampledTracer(tb testing.TB) observe.Tracer {
	tb.Helper()
	tr, err := otel.NewTracer(otel.TracerConfig{
		System: "kafka", TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// otelSink returns a sink that counts.
func otelSink(tb testing.TB) redeliver.Sink {
	tb.Helper()
	s, err := otel.New(otel.Config{System: "kafka", MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// prometheusSink returns a sink that counts for Prometheus.
func prometheusSink(tb testing.TB) redeliver.Sink {
	tb.Helper()
	s, err := prom.New(prom.Config{System: "kafka", Registerer: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Prometheus counts a success without an allocation, because it needs no event.
func TestPrometheusAllocatesNothingForASuccess(t *testing.T) {
	without := testing.AllocsPerRun(2000, success(t, observer{}))
	for name, sink := range map[string]redeliver.Sink{
		"alone": prometheusSink(t), "beside the default sink": observe.Sinks(prometheusSink(t), redeliver.NewSlogSink(slog.New(slog.DiscardHandler))),
	} {
		if with := testing.AllocsPerRun(2000, success(t, observer{sink: sink})); with > without {
			t.Errorf("%s: a success costs %v allocations, and %v without a sink", name, with, without)
		}
	}
}

// observers returns the possible observers, including none.
func observers(tb testing.TB) []observer {
	tb.Helper()
	// The default sink is present, too, as in a service.
	prometheus := observe.Sinks(prometheusSink(tb), redeliver.NewSlogSink(nil))
	return []observer{
		{name: "nothing"},
		{name: "prometheus", sink: prometheus},
		{name: "metrics", sink: otelSink(tb)},
		{name: "tracer", tracer: unsampledTracer(tb)},
		{name: "tracer of the published", tracer: unsampledTracer(tb), published: true},
		{name: "prometheus and tracer", sink: prometheus, tracer: unsampledTracer(tb)},
	}
}

type observer struct {
	name      string
	sink      redeliver.Sink
	tracer    observe.Tracer
	published bool // by a program with a tracer
}

// BenchmarkObserved measures a success with each observer, in its own goroutine, because a Router has one for each
// message. Growing the stack costs more than what it holds.
func BenchmarkObserved(b *testing.B) {
	for _, o := range observers(b) {
		b.Run(o.name, func(b *testing.B) {
			run, done := success(b, o), make(chan struct{})
			b.ReportAllocs()
			for b.Loop() {
				go func() {
					run()
					done <- struct{}{}
				}()
				<-done
			}
		})
	}
}
