package redeliver

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// Action is what the caller must do with a message.
type Action uint8

// The actions.
const (
	ActionCommit     Action = iota // the handler succeeded: ack
	ActionRetryNow                 // run it again at once, in this process
	ActionRetryLater               // schedule it for State.Due, then ack
	ActionPostpone                 // as ActionRetryLater, but no attempt was counted
	ActionDeadLetter               // write it to the DLQ with State.Reason, then ack
)

func (a Action) String() string {
	names := [...]string{"commit", "retry now", "retry later", "postpone", "dead-letter"}
	if int(a) >= len(names) {
		return fmt.Sprintf("action %d", uint8(a))
	}
	return names[a]
}

// Decision is a policy's decision about one answer of a handler.
type Decision struct {
	Action Action
	// Delay is the wait until State.Due.
	Delay time.Duration
	// Pause is the pause of the subscription that the handler asks for, usually 0. See the function Pause.
	Pause time.Duration
	// MessageAtFault is Class.MessageAtFault of the error.
	MessageAtFault bool
	// Unreachable is Class.Unreachable of the error.
	Unreachable bool
	// State is the message's state after the answer, for its headers.
	State State
}

// Decide decides about a message after an attempt. s is the message's state before the attempt, err the handler's answer, now the
// time of the answer. The result depends only on these and on the policy and its functions. Decide does not panic: if Classify
// panics, the failure is an ordinary one, and if the backoff panics, the wait is a minute. State.Error then names the panic.
//
// The first rule that applies decides:
//
//  1. No error: ActionCommit.
//  2. ExpiredError, InvalidError, UndecodableError, CrashedError: ActionDeadLetter. No attempt is counted.
//  3. Permanent: ActionDeadLetter (permanent). Reject: ActionDeadLetter (rejected).
//  4. Postpone: rule 7. Pause: rule 7, for the time of the pause. RetryAfter: rule 8, whatever Classify returns.
//  5. KindPermanent: ActionDeadLetter (permanent).
//  6. KindPostpone, or an open circuit breaker: rule 7.
//  7. The message is postponed: ActionPostpone. No attempt is counted. After 24 h in a row: ActionDeadLetter (expired).
//  8. No retries are left, or the backoff has ended: ActionDeadLetter (timeout or panic if err is one, otherwise exhausted).
//  9. An immediate retry is left, and the error names no time: ActionRetryNow. Past MaxAge or State.Expires: ActionDeadLetter (expired).
//  10. The wait is that of RetryAfter or otherwise of the backoff, with OrderBlocking at most 30 s: ActionRetryLater. A wait above MaxWait: ActionDeadLetter
//     (unschedulable). A wait past MaxAge or State.Expires: ActionDeadLetter (expired).
func (p Policy) Decide(s State, err error, now time.Time) (d Decision) {
	d.State = s
	if err != nil {
		p = p.WithDefaults()
		d.State.FirstError = s.earliestError()
		p.decideInto(&d, err, now.UTC())
		d.State.setFirstError(d.State.FirstError)
	}
	return d
}

func (p *Policy) decideInto(d *Decision, err error, now time.Time) {
	s := &d.State
	previous, previousType := s.Error, s.ErrorType
	s.Error, s.ErrorType, s.LastFailed = p.errorText(err), errorType(err), now
	s.Due, s.Reason, d.Delay = time.Time{}, "", 0
	s.Attempts = min(max(0, s.Attempts), limits.MaxAttempts)

	if end := finalReason(err); end != "" {
		s.PostponedSince = time.Time{}
		if end == ReasonExpired && previous != "" { // no handler failed: keep the earlier failure
			s.Error, s.ErrorType = safeText(func() string { return s.Error + "; the failure was: " + previous }), previousType
		}
		d.deadLetter(end)
		return
	}
	class := p.classify(s, err)
	d.MessageAtFault, d.Unreachable = class.MessageAtFault, class.Unreachable
	if class.Kind == KindPostpone {
		if pause, ok := as[*PauseError](err); ok && pause != nil && pause.Duration > 0 {
			d.Pause = min(pause.Duration, MaxPause)
			class.Backoff = Fixed(d.Pause)
		}
		p.postponeInto(d, class, now)
		return
	}

	s.Attempts++
	s.PostponedSince = time.Time{}
	s.FirstError = cmp.Or(s.FirstError, s.Error)
	if s.FirstFailed.IsZero() {
		s.FirstFailed = now
	}
	if class.Kind == KindPermanent {
		d.deadLetter(permanentReason(err))
		return
	}
	if s.Attempts > retries(class.MaxRetries) {
		d.deadLetter(exhaustedReason(err))
		return
	}
	wait, named := retryDelay(err)
	if !named {
		if s.Attempts <= p.Immediate {
			if p.checkInTime(d, now) {
				d.Action = ActionRetryNow
			}
			return
		}
		var ok bool
		if wait, ok = class.delay(s, s.Attempts-1-p.Immediate); !ok {
			d.deadLetter(exhaustedReason(err))
			return
		}
	}
	p.planAttempt(d, ActionRetryLater, wait, now)
}

// finalReason returns the reason of a failure that counts as no attempt and is never retried, or "" for other failures.
func finalReason(err error) Reason {
	switch {
	case is(err, ErrInvalid):
		return ReasonInvalidated
	case is(err, ErrExpired):
		return ReasonExpired
	case is(err, ErrUndecodable):
		return ReasonUndecodable
	case is(err, ErrCrashed):
		return ReasonCrashed
	default:
		return ""
	}
}

// classify returns the class of err, with the policy's backoff and retries if the class has none.
func (p *Policy) classify(s *State, err error) Class {
	var c Class
	if p.Classify != nil {
		c = p.askClassify(s, err)
	}
	switch {
	case is(err, ErrPermanent):
		c.Kind = KindPermanent
	case is(err, ErrPostponed), is(err, ErrPaused):
		c.Kind = KindPostpone
	case is(err, ErrRetryAfter):
		c.Kind = KindRetry
	case c.Kind == KindRetry && isOpenBreaker(err):
		c.Kind = KindPostpone
	}
	if c.Backoff == nil {
		c.Backoff = p.Backoff
	}
	if c.MaxRetries == 0 {
		c.MaxRetries = p.MaxRetries
	}
	c.MaxRetries = min(c.MaxRetries, limits.MaxAttempts) // a larger count in a header is ignored
	return c
}

func (p *Policy) askClassify(s *State, err error) (c Class) {
	defer func() {
		if r := recover(); r != nil {
			s.addPanic("Classify", r)
			c = Class{}
		}
	}()
	return p.Classify(err)
}

// delay asks the backoff for delayed retry n of a message.
func (c Class) delay(s *State, n int) (d time.Duration, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			s.addPanic("Backoff", r)
			d, ok = defaultMaxExponential, true
		}
	}()
	return c.Backoff.Delay(n, draw(s.ID, s.Attempts))
}

// addPanic adds to the state's error that a function of the policy panicked.
func (s *State) addPanic(function string, r any) {
	s.Error = safeText(func() string { return fmt.Sprintf("Policy.%s panicked: %v; %s", function, r, s.Error) })
}

// postponeInto postpones a message for as long as its next delayed retry would wait.
func (p *Policy) postponeInto(d *Decision, class Class, now time.Time) {
	s := &d.State
	if s.PostponedSince.IsZero() {
		s.PostponedSince = now
	}
	wait, ok := class.delay(s, max(0, s.Attempts-p.Immediate))
	if !ok || wait <= 0 {
		wait = defaultExponentialBase
	}
	left := s.PostponedSince.Add(maxPostponed).Sub(now)
	if left <= 0 {
		d.deadLetterAtLimit(ReasonExpired, fmt.Sprintf("postponed since %s, longer than %s in a row", limits.AppendTime(nil, s.PostponedSince), maxPostponed))
		return
	}
	// The last wait ends at the bound: a backoff of days must not dead-letter a message whose breaker opens once.
	p.planAttempt(d, ActionPostpone, min(wait, left), now)
}

// planAttempt plans the next attempt after wait, or dead-letters the message if that is too late or too long.
func (p *Policy) planAttempt(d *Decision, action Action, wait time.Duration, now time.Time) {
	wait = max(0, wait)
	if p.Order == OrderBlocking && wait > limits.MaxBlock {
		s := &d.State
		s.Error = limits.CutMiddle(fmt.Sprintf("a wait of %s is cut to %s, the most with OrderBlocking; the failure was: %s", wait, limits.MaxBlock, s.Error), limits.MaxErrorText)
		wait = limits.MaxBlock
	}
	if wait > MaxWait {
		d.deadLetterAtLimit(ReasonUnschedulable, (&UnschedulableError{Wait: wait, Max: MaxWait}).Error())
		return
	}
	if due := limits.CeilMilli(now.Add(wait)); p.checkInTime(d, due) {
		d.Action, d.Delay, d.State.Due = action, wait, due
	}
}

// checkInTime reports whether an attempt at t passes neither MaxAge nor the message's own expiry. Otherwise it dead-letters the message.
func (p *Policy) checkInTime(d *Decision, t time.Time) bool {
	s := &d.State
	e := p.expired(s, t)
	if e == nil {
		return true
	}
	d.deadLetterAtLimit(ReasonExpired, fmt.Sprintf("a retry at %s would pass %s", limits.AppendTime(nil, t), e.Limit))
	return false
}

// deadLetterAtLimit dead-letters a message that has reached a limit. Its error names the limit and then the latest
// failure.
func (d *Decision) deadLetterAtLimit(r Reason, limit string) {
	s := &d.State
	if s.Error != "" {
		limit += "; the failure was: " + s.Error
	}
	s.Error = safeText(func() string { return limit })
	d.deadLetter(r)
}

func (d *Decision) deadLetter(r Reason) {
	d.Action, d.State.Reason = ActionDeadLetter, r
	if d.State.FirstFailed.IsZero() {
		d.State.FirstFailed = d.State.LastFailed
	}
}

func permanentReason(err error) Reason {
	if is(err, ErrRejected) {
		return ReasonRejected
	}
	return ReasonPermanent
}

func exhaustedReason(err error) Reason {
	switch {
	case is(err, ErrTimeout):
		return ReasonTimeout
	case is(err, ErrPanic):
		return ReasonPanic
	default:
		return ReasonExhausted
	}
}

// retryDelay returns the wait that an error names, and whether it names one.
func retryDelay(err error) (time.Duration, bool) {
	if !is(err, ErrRetryAfter) { // errors.As allocates
		return 0, false
	}
	after, ok := as[*RetryAfterError](err)
	if !ok || after == nil {
		return 0, false
	}
	return after.After, true
}

// RejectUnschedulable changes a decision to DeadLetter, because the broker cannot delay the message for so long, or refuses it. err
// says why.
func (p *Policy) RejectUnschedulable(d *Decision, err error) {
	s := &d.State
	first := s.earliestError()
	s.ErrorType, s.Due, d.Delay = errorType(err), time.Time{}, 0
	d.deadLetterAtLimit(ReasonUnschedulable, p.errorText(err))
	s.setFirstError(first)
}
