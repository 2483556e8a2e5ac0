package otel

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/tracing"
)

// span is a run.
type span struct {
	trace.Span
	headers          carrier // of its message; here it costs no allocation
	retriesAreErrors bool
}

// Traceparent implements [tracing.Span].
func (s *span) Traceparent() string {
	sc := s.SpanContext()
	if !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + (sc.TraceFlags() & trace.FlagsSampled).String()
}

// End implements [tracing.Span].
func (s *span) End(e tracing.End) {
	if s.IsRecording() {
		s.SetAttributes(attrOutcome.String(string(e.Outcome)))
		if st := e.State; st != nil {
			s.decided(&e, st)
		}
	}
	s.Span.End()
}

// decided says what the policy made of a failure.
func (s *span) decided(e *tracing.End, st *redeliver.State) {
	switch {
	case e.Outcome == tracing.DeadLettered || e.Outcome == tracing.Discarded:
		if st.Reason != "" {
			s.SetAttributes(attrReason.String(string(st.Reason)))
		}
		s.SetAttributes(attrErrorType.String(errorType(st)))
		fail(s.Span, st)
	case s.retriesAreErrors && e.Outcome == tracing.Retried:
		s.SetAttributes(attrErrorType.String(errorType(st)))
		fail(s.Span, st)
	default:
		// Not error.type, by which what reads spans knows a failed one.
		attrs := []attribute.KeyValue{attrErrType.String(st.ErrorType), attrError.String(st.Error)}
		if !st.Due.IsZero() {
			attrs = append(attrs, attrDue.String(st.Due.UTC().Format(time.RFC3339Nano)))
		}
		s.SetAttributes(attrs...)
	}
}

// fail gives a span the status Error. The text is the state's, which is short and has no
// credentials of URLs in it.
func fail(s trace.Span, st *redeliver.State) { s.SetStatus(codes.Error, st.Error) }

// errorType is error.type of a span: the Go type of the failure.
func errorType(st *redeliver.State) string {
	if st.ErrorType == "" {
		return "_OTHER" // as the semantic conventions name what has none
	}
	return st.ErrorType
}
