package otel_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver/observe/otel"
)

var errDeclined = errors.New("card declined")

// The span that publishes messages in these tests.
const (
	publisher   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	publisherID = "b7ad6b7169203331"
)

// traced returns a message that a span has published.
func traced(id string) *message.Message {
	msg := message.NewMessage(id, nil)
	msg.Metadata.Set("traceparent", publisher)
	return msg
}

// newTracer returns a tracer and a recorder of its spans.
func newTracer(t *testing.T, cfg otel.TracerConfig) (*otel.Tracer, *recorder) {
	t.Helper()
	r := &recorder{tracetest.NewSpanRecorder(), t}
	cfg.System, cfg.Propagator = "kafka", propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	cfg.TracerProvider = sdk.NewTracerProvider(sdk.WithSpanProcessor(r.SpanRecorder))
	tr, err := otel.NewTracer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr, r
}

// recorder has the spans of a test. They are printed if the test has failed.
type recorder struct {
	*tracetest.SpanRecorder
	t *testing.T
}

// spans returns the ended spans, in the order of their beginnings. All must have ended. If want is 0, any number is
// allowed.
func (r *recorder) spans(want int) []span {
	r.t.Helper()
	var all []span
	for _, s := range r.Ended() {
		all = append(all, span{s})
	}
	slices.SortStableFunc(all, func(a, b span) int { return a.StartTime().Compare(b.StartTime()) })
	if begun := len(r.Started()); want > 0 && len(all) != want || begun != len(all) {
		for _, s := range all {
			r.t.Log(s)
		}
		r.t.Fatalf("%d spans have begun and %d ended, want %d", begun, len(all), want)
	}
	return all
}

type span struct{ sdk.ReadOnlySpan }

func (s span) id() string    { return s.SpanContext().SpanID().String() }
func (s span) trace() string { return s.SpanContext().TraceID().String() }

// attribute returns an attribute as text.
func (s span) attribute(key string) string { return value(s.Attributes(), key) }

func value(attrs []attribute.KeyValue, key string) string {
	for _, kv := range attrs {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// links returns a span's links as "kind=span id", sorted.
func (s span) links() string {
	var all []string
	for _, l := range s.Links() {
		all = append(all, value(l.Attributes, "redeliver.link")+"="+l.SpanContext.SpanID().String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s span) String() string {
	return s.Name() + " " + s.id() + " links " + s.links() + " " + s.attribute("redeliver.outcome") + " " + s.Status().Code.String() + " " + s.Status().Description
}

// wantSpan fails the test if a span differs from the expected one.
func (r *recorder) wantSpan(s span, name, outcome, links string, status codes.Code) {
	r.t.Helper()
	if s.Name() != name || s.attribute("redeliver.outcome") != outcome || s.links() != links || s.Status().Code != status {
		r.t.Errorf("the span is\n  %s\nand not\n  %s links %s %s %s", s, name, links, outcome, status)
	}
}

// fails returns a handler that fails n times.
func fails(n int) func(*message.Message) error {
	return func(*message.Message) error {
		if n--; n >= 0 {
			return errDeclined
		}
		return nil
	}
}

// current returns the span id in a handler's context.
func current(ctx context.Context) string { return trace.SpanContextFromContext(ctx).SpanID().String() }

const minute = time.Minute

// exit ends its goroutine, as t.FailNow does.
func exit() error {
	runtime.Goexit()
	return nil
}
