package redeliver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// NewSlogSink returns a sink that writes events to a log. Lost messages are errors. Dead letters, stuck handlers and
// their late answers, ignored headers and a subscription's errors are warnings. Retries, postponed and abandoned
// messages and a subscription's other changes have the level Info. All others (attempts, commits, hops, publishes and
// failed writes) have the level Debug, so an outage of the broker is one line when it begins and one when it ends. A
// panic is a warning. Its stack, cut to 4 KiB, is logged at the first attempt of a message, or with its dead letter if the first error
// was another. A nil logger is slog.Default().
func NewSlogSink(log *slog.Logger) Sink {
	if log == nil {
		log = slog.Default()
	}
	return slogSink{log}
}

// maxStack bounds the stack of a panic, in bytes.
const maxStack = 4 << 10

type slogSink struct{ log *slog.Logger }

// Event implements [Sink].
func (s slogSink) Event(e Event) {
	if s.Wants(e) {
		s.write(e)
	}
}

// Wants implements FilteringSink of package observe.
func (s slogSink) Wants(e Event) bool {
	switch e.(type) {
	case Attempted, Committed, Hopped, Published:
		return s.log.Enabled(context.Background(), slog.LevelDebug)
	default:
		return true
	}
}

func (s slogSink) write(e Event) {
	r := recordOf(e)
	var stack string
	if r.decided {
		// No code above the handler gets the panic, so nothing else logs its stack.
		if p, ok := errors.AsType[*PanicError](r.err); ok && p != nil && len(p.Stack) > 0 {
			r.level = max(r.level, slog.LevelWarn)
			if logsStack(e, r.state) {
				stack = limits.Cut(string(p.Stack), maxStack)
			}
		}
	}
	if !s.log.Enabled(context.Background(), r.level) {
		return
	}
	attrs := r.attrs
	if st := r.state; st != nil {
		attrs = append([]slog.Attr{
			slog.String("id", st.ID), slog.String("origin", st.Origin), slog.String("group", st.Group),
		}, attrs...)
	}
	if r.err != nil {
		attrs = append(attrs, slog.String("error", r.errorText()))
	}
	if stack != "" {
		attrs = append(attrs, slog.String("stack", stack))
	}
	s.log.LogAttrs(context.Background(), r.level, r.text, attrs...)
}

// logRecord is the log line of an event.
type logRecord struct {
	level   slog.Level
	text    string
	state   *State // nil if the event is not about one message
	err     error
	decided bool // the policy has decided about the message because of err
	attrs   []slog.Attr
}

// logsStack reports whether the record of an event has the stack of its panic: each message has it once.
func logsStack(e Event, st *State) bool {
	switch e.(type) {
	case DeadLettered, Discarded:
		return st.Attempts <= 1 || st.FirstError != ""
	default:
		return st.Attempts <= 1
	}
}

// errorText returns the text of the error: that of the state, if the policy has written it, and otherwise the safeText of err.
func (r logRecord) errorText() string {
	if r.decided && r.state.Error != "" {
		return r.state.Error
	}
	return safeText(r.err.Error)
}

func recordOf(e Event) logRecord {
	switch e := e.(type) {
	case Attempted:
		return logRecord{slog.LevelDebug, "attempt ended", &e.State, e.Err, false, []slog.Attr{
			slog.Int("attempt", e.State.Attempt()), slog.Duration("took", e.Took)}}
	case Committed:
		return logRecord{slog.LevelDebug, "message committed", &e.State, nil, false, nil}
	case RetryScheduled:
		return logRecord{slog.LevelInfo, "retry scheduled", &e.State, e.Err, true, []slog.Attr{
			slog.Int("attempts", e.State.Attempts), slog.Duration("delay", e.Delay), slog.Time("due", e.State.Due), slog.String("where", e.Where)}}
	case MessagePostponed:
		return logRecord{slog.LevelInfo, "message postponed", &e.State, e.Err, true, []slog.Attr{
			slog.Duration("delay", e.Delay), slog.Time("since", e.State.PostponedSince), slog.String("where", e.Where)}}
	case DeadLettered:
		attrs := []slog.Attr{slog.Int("attempts", e.State.Attempts), slog.String("reason", string(e.State.Reason)), slog.String("where", e.Where)}
		if e.State.Truncated != "" {
			attrs = append(attrs, slog.String("truncated", e.State.Truncated))
		}
		return logRecord{slog.LevelWarn, "message dead-lettered", &e.State, e.Err, true, addFirstError(attrs, &e.State)}
	case Discarded:
		return logRecord{slog.LevelWarn, "message discarded", &e.State, e.Err, true, addFirstError([]slog.Attr{
			slog.Int("attempts", e.State.Attempts), slog.String("reason", string(e.State.Reason))}, &e.State)}
	case Hopped:
		return logRecord{slog.LevelDebug, "message hopped", &e.State, nil, false, []slog.Attr{
			slog.String("from", e.From), slog.String("to", e.To), slog.Time("due", e.State.Due)}}
	case Published:
		return logRecord{slog.LevelDebug, "delayed message published", &e.State, nil, false, []slog.Attr{slog.String("topic", e.Topic)}}
	case PublishFailed:
		level, text := slog.LevelDebug, "write failed, source stays unacked" // a change of the subscription reports the outage once
		if e.Retry >= time.Minute {
			level, text = slog.LevelWarn, "delayed publish failed, waits on a level"
		}
		return logRecord{level, text, &e.State, e.Err, false, []slog.Attr{
			slog.String("where", e.Where), slog.Int("try", e.Try), slog.Duration("retry", e.Retry)}}
	case HandlerStuck:
		return logRecord{slog.LevelWarn, "handler outlived its timeout", &e.State, nil, false, []slog.Attr{
			slog.Int("attempt", e.State.Attempt()), slog.Duration("timeout", e.Timeout), slog.Int64("stuck", e.Stuck)}}
	case LateAnswer:
		return logRecord{slog.LevelWarn, "late answer ignored", &e.State, e.Err, false, []slog.Attr{slog.Int64("stuck", e.Stuck)}}
	case HeadersIgnored:
		return logRecord{slog.LevelWarn, "headers ignored", nil, nil, false, []slog.Attr{
			slog.String("topic", e.Topic), slog.String("id", e.ID), slog.Any("findings", firstOf(e.Findings))}}
	case Abandoned:
		return logRecord{slog.LevelInfo, "attempt abandoned", &e.State, e.Err, false, nil}
	case MessagesLost:
		return logRecord{slog.LevelError, "messages are lost", nil, nil, false, []slog.Attr{
			slog.String("origin", e.Origin), slog.String("group", e.Group), slog.String("where", e.Where),
			slog.Int64("count", e.Count), slog.String("detail", e.Detail)}}
	case SubscriptionChanged:
		level, attrs := slog.LevelInfo, []slog.Attr{slog.String("origin", e.Origin), slog.String("group", e.Group)}
		if e.Err != nil {
			level = slog.LevelWarn
		}
		if e.Detail != "" {
			attrs = append(attrs, slog.String("detail", e.Detail))
		}
		return logRecord{level, "subscription: " + string(e.Change), nil, e.Err, false, attrs}
	default:
		return logRecord{level: slog.LevelDebug, text: "event"}
	}
}

// addFirstError adds the first error of a message that will not be retried, if it is not the latest one.
func addFirstError(attrs []slog.Attr, st *State) []slog.Attr {
	if st.FirstError == "" {
		return attrs
	}
	return append(attrs, slog.String("first_error", st.FirstError))
}

// firstOf bounds the number of findings, because a third party's adapter may not.
func firstOf(findings []Finding) (first []Finding) {
	for _, f := range findings {
		first = AppendFinding(first, f)
	}
	return first
}
