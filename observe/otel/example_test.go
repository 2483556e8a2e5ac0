package otel_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/redelivertest"
)

// t is the parameter of your test function: func TestTraces(t *testing.T).
var t *testing.T

// A handler that fails once: its second attempt is in a trace of its own, linked to the
// first and to the span that published the message. The broker is the one in memory; with
// a real one only the client is another.
//
//nolint:testableexamples // TestExample runs it
func ExampleNewTracer() {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		spans := tracetest.NewSpanRecorder() // in a service: an exporter
		tracer, err := otel.NewTracer(otel.TracerConfig{
			System:         "kafka",
			TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)),
			Propagator:     propagation.TraceContext{},
		})
		if err != nil {
			t.Fatal(err)
		}
		billing := b.Open(redelivertest.Config{
			Group: "billing", Tracer: tracer, Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Minute)},
		})
		orders := billing.Handle("orders", func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() == 1 {
				return errors.New("bank is closed")
			}
			return nil
		})

		order := message.NewMessage("o-1", []byte("4711"))
		// Set by the publisher.
		order.Metadata.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		b.Publish("orders", order)

		orders.Outcome("o-1") // when everything is at rest
		for _, s := range spans.Ended() {
			line := fmt.Sprint(s.Name(), ", ", s.Status().Code, ", links: ", len(s.Links()))
			t.Log(line) // process orders, Unset, links: 1; process orders, Unset, links: 2
		}
		if n := len(spans.Ended()); n != 2 {
			t.Errorf("%d spans", n)
		}
	})
}

// Run the example here, because it needs a test and so has no output of its own.
func TestExample(test *testing.T) {
	t = test
	ExampleNewTracer()
}
