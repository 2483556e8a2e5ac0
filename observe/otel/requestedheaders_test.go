package otel_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/otel"
)

// counting is a propagator that counts its calls for messages.
type counting struct {
	propagation.TextMapPropagator

	asked int
}

func (c *counting) Extract(ctx context.Context, from propagation.TextMapCarrier) context.Context {
	c.asked++
	return c.TextMapPropagator.Extract(ctx, from)
}

// stamping is a propagator that extracts a value from each message, independent of its headers.
type stamping struct{ propagation.TraceContext }

func (stamping) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context {
	m, _ := baggage.NewMemberRaw("stamped", "yes")
	b, _ := baggage.New(m)
	return baggage.ContextWithBaggage(ctx, b)
}

// A propagator is called for messages that have one of the headers that it requests. It is called for all messages if
// it requests none or returns a value without headers.
func TestAPropagatorIsAskedAboutMessagesWithItsHeaders(t *testing.T) {
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	for _, c := range []struct {
		name       string
		propagator propagation.TextMapPropagator
		header     string
		asked      int // for three messages, and once to learn
		baggage    string
	}{
		{"trace context, none", propagation.TraceContext{}, "tenant: acme", 1, ""},
		{"trace context, one", propagation.TraceContext{}, "traceparent: " + strings.TrimSuffix(publisher, "1") + "0", 4, ""},
		{"both, none", both, "", 1, ""},
		{"both, baggage", both, "baggage: tenant=acme", 4, "tenant=acme"},
		{"nothing", propagation.NewCompositeTextMapPropagator(), "traceparent: x", 4, ""},
		{"of all messages", stamping{}, "", 4, "stamped=yes"},
	} {
		p := &counting{TextMapPropagator: c.propagator}
		tr, err := otel.NewTracer(otel.TracerConfig{System: "kafka", TracerProvider: trace.NewTracerProvider(), Propagator: p})
		if err != nil {
			t.Fatal(err)
		}
		headers := message.Metadata{}
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			headers[name] = value
		}
		for range 3 {
			run := observe.Run{Origin: "orders", Group: "billing", Messages: []observe.Message{{Headers: headers, State: redeliver.State{ID: "1"}}}}
			ctx, span := tr.Begin(t.Context(), &run)
			span.End(observe.End{Outcome: observe.OutcomeSucceeded})
			if got := baggage.FromContext(ctx).String(); got != c.baggage {
				t.Errorf("%s: baggage %q, want %q", c.name, got, c.baggage)
			}
		}
		if p.asked != c.asked {
			t.Errorf("%s: called %d times, want %d", c.name, p.asked, c.asked)
		}
	}
}
