package delayqueue

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Arrival describes a message that came back from one of redeliver's topics or queues, without its headers.
type Arrival struct {
	// Group and Origin are the subscription's. Ladder has the levels of its policy; it is nil on a broker without
	// levels.
	Group, Origin string
	Ladder        Ladder
	// Findings are the problems of headers that could not be read as text.
	Findings []redeliver.Finding
	// Level is the level on which the message waits, or 0 on the retry topic or queue.
	Level time.Duration
	// Written is when the message was written to its present place, by its writer's clock, or when it arrived if the broker does
	// not report that. A time after Now counts as Now: a message that has lost its due time must not wait because of a wrong
	// clock.
	Written time.Time
	// Leaves is when the message leaves its level. Default: Level after Written.
	Leaves time.Time
	// Jitter is the longest remaining wait that the message spends in its present place although a level fits into it. 0 if the
	// message hops whenever a level fits.
	Jitter time.Duration
	Now    time.Time
}

// Stay says how long a message stays in its place, and what happens to it then.
type Stay struct {
	// State is the plausible part of the state in the headers. Its group and origin are the subscription's, and its ID
	// and Due are set.
	State *redeliver.State
	// Until is when the message leaves its place. It may be in the past.
	Until time.Time
	// Hops reports whether the message moves to another level at Until, because it is not due then.
	Hops bool
	// Publish reports whether it is a delayed publish, which no handler has received. When it is due, it goes to its
	// topic.
	Publish bool
	// Findings are the problems of the headers, to be reported.
	Findings []redeliver.Finding
}

// Arrive reads the state of a message that has come back, accepts the plausible parts of it, and returns how long the
// message stays. headers are redeliver's own, as text. If they have no id, Arrive calls id for the message's own. It keeps
// neither headers nor id. Only Arrive interprets these headers:
//
//   - If the headers are missing, or are another group's, the message is a new one.
//     If only some are missing, the due time still counts. Headers cannot send the
//     message to another group's handler.
//   - Arrive accepts any due time, because clocks differ, and too early is worse
//     than too late. A time that is further away than redeliver.MaxWait is changed to
//     MaxWait from now. A delayed publish is published even then, because other groups
//     may wait for it.
//   - Without a due time the message leaves when its level is over. It does not
//     leave at once, because its retries must not all run within a moment.
//   - If a level fits into the time that remains when this level is over, the message
//     hops. Otherwise it stays until it is due.
func Arrive(a *Arrival, headers []driver.Header, id func() string) Stay {
	st, findings := driver.ParseHeaders(a.Group, headers)
	if len(a.Findings) > 0 {
		findings = append(slices.Clip(a.Findings), findings...)
	}
	if len(headers) == 0 {
		findings = append(findings, redeliver.Finding{Header: redeliver.HeaderAttempt, Problem: "is missing where redeliver writes; the message counts as new"})
	}
	stay := Stay{State: &st, Publish: len(findings) == 0 && neverDelivered(&st)}
	if st.ID == "" {
		st.ID = id()
	}
	st.Group, st.Origin = a.Group, a.Origin

	written := a.Written
	if written.After(a.Now) {
		written = a.Now
	}
	if latest := limits.CeilMilli(a.Now.Add(redeliver.MaxWait).UTC()); st.Due.After(latest) {
		findings = append(findings, redeliver.Finding{
			Header: redeliver.HeaderDue, Value: st.Due.Format(time.RFC3339Nano),
			Problem: "is later than anything can be planned; the message waits for " + redeliver.MaxWait.String(),
		})
		st.Due = latest
	}
	end := written.Add(a.Level)
	if st.Due.IsZero() {
		st.Due = limits.CeilMilli(end.UTC())
		if a.Level == 0 { // at once, but never before it is due
			st.Due = end.UTC().Truncate(time.Millisecond)
		}
	}
	if !a.Leaves.IsZero() {
		end = a.Leaves
	}
	stay.Until, stay.Findings = st.Due, findings
	rest := st.Due.Sub(end)
	if _, more := a.Ladder.Next(rest, 0); more && rest > a.Jitter {
		stay.Until, stay.Hops = end, true
	}
	return stay
}

// neverDelivered reports whether a message is a delayed publish, which no handler has received.
func neverDelivered(st *redeliver.State) bool {
	return !st.Source.Known && st.Attempts == 0 && st.Replays == 0 && st.PostponedSince.IsZero() && st.FirstFailed.IsZero()
}
