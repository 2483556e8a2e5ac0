package redeliver

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redeliver/redeliver/internal/limits"
)

// NewSlogSink writes events to a log. Lost messages are errors. Dead letters, stuck handlers and their late answers, ignored headers
// and a subscription's errors are warnings. Retries, postponed and abandoned messages and a subscription's other changes have the
// level Info. The rest (attempts, commits, hops, publishes and failed writes) has the level Debug, so an outage of the broker is one
// line when it begins and one when it ends. A panic is a warning with its stack, cut to 4 KiB. A nil logger is slog.Default().
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

// Wants implements [FilteringSink].
func (s slogSink) Wants(e Event) bool {
	switch e.(type) {
	case Attempted, Committed, Hopped, Published:
		return s.log.Enabled(context.Background(), slog.LevelDebug)
	default:
		return true
	}
}

func (s slogSink) write(e Event) {
	level, text, st, err := describe(e)
	var stack string
	switch e.(type) {
	case RetryScheduled, DeadLettered, Discarded:
		// Nothing above the handler sees the panic, so no one else logs its stack.
		if p, ok := errors.AsType[*PanicError](err); ok && p != nil && len(p.Stack) > 0 {
			level, stack = max(level, slog.LevelWarn), limits.Cut(string(p.Stack), maxStack)
		}
	}
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	attrs := details(e)
	if st != nil {
		attrs = append([]slog.Attr{
			slog.String("id", st.ID), slog.String("origin", st.Origin), slog.String("group", st.Group),
		}, attrs...)
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", errorOf(e, err)))
	}
	if stack != "" {
		attrs = append(attrs, slog.String("stack", stack))
	}
	s.log.LogAttrs(context.Background(), level, text, attrs...)
}

// errorOf is the text of an event's error: the state's, which Policy.ErrorText has written, else the error's, made safe.
func errorOf(e Event, err error) string {
	text := ""
	switch e := e.(type) {
	case RetryScheduled:
		text = e.State.Error
	case MessagePostponed:
		text = e.State.Error
	case DeadLettered:
		text = e.State.Error
	case Discarded:
		text = e.State.Error
	}
	if text != "" {
		return text
	}
	return safeText(err.Error)
}

// describe returns the level, the text, the message and the error of an event.
func describe(e Event) (slog.Level, string, *State, error) {
	switch e := e.(type) {
	case Attempted:
		return slog.LevelDebug, "attempt ended", &e.State, e.Err
	case Committed:
		return slog.LevelDebug, "message committed", &e.State, nil
	case RetryScheduled:
		return slog.LevelInfo, "retry scheduled", &e.State, e.Err
	case MessagePostponed:
		return slog.LevelInfo, "message postponed", &e.State, e.Err
	case DeadLettered:
		return slog.LevelWarn, "message dead-lettered", &e.State, e.Err
	case Discarded:
		return slog.LevelWarn, "message discarded", &e.State, e.Err
	case Hopped:
		return slog.LevelDebug, "message hopped", &e.State, nil
	case Published:
		return slog.LevelDebug, "delayed message published", &e.State, nil
	case PublishFailed: // a change of the subscription reports the outage once
		return slog.LevelDebug, "publish refused, source stays unacked", &e.State, e.Err
	case HandlerStuck:
		return slog.LevelWarn, "handler outlived its timeout", &e.State, nil
	case LateAnswer:
		return slog.LevelWarn, "late answer ignored", &e.State, e.Err
	case HeadersIgnored:
		return slog.LevelWarn, "headers ignored", nil, nil
	case Abandoned:
		return slog.LevelInfo, "attempt abandoned", &e.State, e.Err
	case MessagesLost:
		return slog.LevelError, "messages are lost", nil, nil
	case SubscriptionChanged:
		level := slog.LevelInfo
		if e.Err != nil {
			level = slog.LevelWarn
		}
		return level, "subscription: " + string(e.Change), nil, e.Err
	default:
		return slog.LevelDebug, "event", nil, nil
	}
}

// details returns the attributes of one kind of event.
func details(e Event) []slog.Attr {
	switch e := e.(type) {
	case Attempted:
		return []slog.Attr{slog.Int("attempt", e.State.Attempt()), slog.Duration("took", e.Took)}
	case RetryScheduled:
		return []slog.Attr{slog.Int("attempts", e.State.Attempts), slog.Duration("delay", e.Delay), slog.Time("due", e.State.Due), slog.String("where", e.Where)}
	case MessagePostponed:
		return []slog.Attr{slog.Duration("delay", e.Delay), slog.Time("since", e.State.PostponedSince), slog.String("where", e.Where)}
	case DeadLettered:
		attrs := []slog.Attr{slog.Int("attempts", e.State.Attempts), slog.String("reason", string(e.State.Reason)), slog.String("where", e.Where)}
		if e.State.Truncated != "" {
			attrs = append(attrs, slog.String("truncated", e.State.Truncated))
		}
		return attrs
	case Discarded:
		return []slog.Attr{slog.Int("attempts", e.State.Attempts), slog.String("reason", string(e.State.Reason))}
	case Hopped:
		return []slog.Attr{slog.String("from", e.From), slog.String("to", e.To), slog.Time("due", e.State.Due)}
	case Published:
		return []slog.Attr{slog.String("topic", e.Topic)}
	case PublishFailed:
		return []slog.Attr{slog.String("where", e.Where), slog.Int("try", e.Try), slog.Duration("retry", e.Retry)}
	case HandlerStuck:
		return []slog.Attr{slog.Int("attempt", e.State.Attempt()), slog.Duration("timeout", e.Timeout), slog.Int64("stuck", e.Stuck)}
	case LateAnswer:
		return []slog.Attr{slog.Int64("stuck", e.Stuck)}
	case HeadersIgnored:
		return []slog.Attr{slog.String("topic", e.Topic), slog.String("id", e.ID), slog.Any("findings", firstOf(e.Findings))}
	case MessagesLost:
		return []slog.Attr{slog.String("origin", e.Origin), slog.String("group", e.Group), slog.String("where", e.Where), slog.Int64("count", e.Count), slog.String("detail", e.Detail)}
	case SubscriptionChanged:
		attrs := []slog.Attr{slog.String("origin", e.Origin), slog.String("group", e.Group)}
		if e.Detail != "" {
			attrs = append(attrs, slog.String("detail", e.Detail))
		}
		return attrs
	default:
		return nil
	}
}

// firstOf bounds the findings, because the adapter may be a third party's.
func firstOf(findings []Finding) (first []Finding) {
	for _, f := range findings {
		first = AppendFinding(first, f)
	}
	return first
}
