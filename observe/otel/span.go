package otel

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// span is the span of a run.
type span struct {
	trace.Span
	headers          carrier // of its message; a field avoids an allocation
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
func (s *span) End(e observe.End) {
	if s.IsRecording() {
		s.SetAttributes(attrOutcome.String(string(e.Outcome)))
		if st := e.State; st != nil {
			s.setFailure(&e, st)
		}
	}
	s.Span.End()
}

// setFailure adds the policy's decision about a failure.
func (s *span) setFailure(e *observe.End, st *redeliver.State) {
	switch {
	case e.Outcome == observe.OutcomeDeadLettered || e.Outcome == observe.OutcomeDiscarded:
		if st.Reason != "" {
			s.SetAttributes(attrReason.String(string(st.Reason)))
		}
		s.SetAttributes(attrErrorType.String(errorType(st)))
		setError(s.Span, st)
	case s.retriesAreErrors && e.Outcome == observe.OutcomeRetried:
		s.SetAttributes(attrErrorType.String(errorType(st)))
		setError(s.Span, st)
	default:
		// Not error.type, because readers of spans read its presence as a failure.
		attrs := []attribute.KeyValue{attrErrType.String(st.ErrorType), attrError.String(st.Error)}
		if !st.Due.IsZero() {
			attrs = append(attrs, attrDue.String(st.Due.UTC().Format(time.RFC3339Nano)))
		}
		s.SetAttributes(attrs...)
	}
}

// setError sets the status Error. The text is the state's, which is short and contains no credentials of URLs.
func setError(s trace.Span, st *redeliver.State) { s.SetStatus(codes.Error, st.Error) }

// errorType returns the value of error.type for a span: the Go type of the failure.
func errorType(st *redeliver.State) string {
	if st.ErrorType == "" {
		return "_OTHER" // the value of the semantic conventions for an unknown type
	}
	return st.ErrorType
}
