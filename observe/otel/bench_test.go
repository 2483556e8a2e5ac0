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
	"github.com/redeliver/redeliver/internal/tracing"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/observe/prom"
)

// success handles and commits one message, with a handler behind Retry, for each call.
func success(tb testing.TB, o observer) func() {
	tb.Helper()
	q := enginetest.New(redeliver.Policy{Timeout: time.Minute})
	q.Sub.Sink, q.Sub.Tracer = o.sink, o.tracer
	if o.published {
		q.Metadata = message.Metadata{"traceparent": strings.TrimSuffix(publisher, "1") + "0"} // its publisher's was not sampled either
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

// never makes a tracer of which no span is sampled.
func never(tb testing.TB) tracing.Tracer {
	tb.Helper()
	tr, err := otel.NewTracer(otel.TracerConfig{
		System: "kafka", TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// counted makes a sink that counts.
func counted(tb testing.TB) redeliver.Sink {
	tb.Helper()
	s, err := otel.New(otel.Config{System: "kafka", MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// scraped makes a sink that counts for Prometheus.
func scraped(tb testing.TB) redeliver.Sink {
	tb.Helper()
	s, err := prom.New(prom.Config{System: "kafka", Registerer: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Prometheus counts a success without an allocation: no event is made for it.
func TestPrometheusAllocatesNothingForASuccess(t *testing.T) {
	without := testing.AllocsPerRun(2000, success(t, observer{}))
	for name, sink := range map[string]redeliver.Sink{
		"alone": scraped(t), "beside the default sink": redeliver.Sinks(scraped(t), redeliver.NewSlogSink(slog.New(slog.DiscardHandler))),
	} {
		if with := testing.AllocsPerRun(2000, success(t, observer{sink: sink})); with > without {
			t.Errorf("%s: a success costs %v allocations, and %v without a sink", name, with, without)
		}
	}
}

// observers are who may look on, and none.
func observers(tb testing.TB) []observer {
	tb.Helper()
	prometheus := redeliver.Sinks(scraped(tb), redeliver.NewSlogSink(nil)) // beside the default sink, as in a service
	return []observer{
		{name: "nothing"},
		{name: "prometheus", sink: prometheus},
		{name: "metrics", sink: counted(tb)},
		{name: "tracer", tracer: never(tb)},
		{name: "tracer of the published", tracer: never(tb), published: true},
		{name: "prometheus and tracer", sink: prometheus, tracer: never(tb)},
	}
}

type observer struct {
	name      string
	sink      redeliver.Sink
	tracer    tracing.Tracer
	published bool // by somebody who has a tracer
}

// BenchmarkObserved is what a success costs with each of them, in a goroutine of its own, as a Router has one for each
// message: a stack that grows is dearer than what it holds.
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
