package redeliver

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Sentinels for errors.Is. If there is also a typed error, errors.As finds the details.
var (
	// ErrPermanent marks an error that no retry can fix. See [Permanent].
	ErrPermanent = errors.New("permanent error")
	// ErrRejected marks a message that its handler rejected. See [RejectedError].
	ErrRejected = errors.New("rejected")
	// ErrRetryAfter marks an error that says when to try again. See [RetryAfterError].
	ErrRetryAfter = errors.New("retry after a given time")
	// ErrPostponed marks an answer that counts as no attempt. See [Postpone].
	ErrPostponed = errors.New("postponed")
	// ErrPaused marks an answer that pauses the subscription. See [PauseError].
	ErrPaused = errors.New("paused")
	// ErrPanic marks a handler that panicked. See [PanicError].
	ErrPanic = errors.New("handler panicked")
	// ErrTimeout marks a handler that exceeded its Timeout. See [TimeoutError].
	ErrTimeout = errors.New("handler timed out")
	// ErrNacked is the failure of a message that was nacked without an error.
	ErrNacked = errors.New("nacked without an error")
	// ErrInvalid marks a message that Policy.Invalid refused. See [InvalidError].
	ErrInvalid = errors.New("message must no longer run")
	// ErrUndecodable marks a record that cannot be decoded. See [UndecodableError].
	ErrUndecodable = errors.New("undecodable message")
	// ErrCrashed marks a message that ran alone when its process died, MaxCrashes times. See [CrashedError].
	ErrCrashed = errors.New("the process died while it ran this message")
	// ErrUnschedulable marks a delay that the broker cannot hold. See [UnschedulableError].
	ErrUnschedulable = errors.New("delay cannot be scheduled")
	// ErrConfig marks a configuration that was refused. See [ConfigError].
	ErrConfig = errors.New("configuration refused")
)

// permanentError wraps the error of a handler for which a retry is useless.
type permanentError struct{ Err error }

// Permanent returns an error that says that no retry can fix err: the message goes to the DLQ now. Permanent(nil) is
// nil. The error may be wrapped with %w or joined.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

func (e *permanentError) Error() string        { return textOf(e.Unwrap(), ErrPermanent) }
func (e *permanentError) Is(target error) bool { return target == ErrPermanent }

// Unwrap returns the error that is wrapped.
func (e *permanentError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// RejectedError is the reason why a handler rejected its message.
type RejectedError struct{ Why string }

// Reject returns an error that refuses a message: it goes to the DLQ now, with the reason rejected and with why as its error. The
// error may be wrapped with %w or joined.
func Reject(why string) error { return &RejectedError{why} }

func (e *RejectedError) Error() string {
	if e == nil || e.Why == "" {
		return ErrRejected.Error()
	}
	return "rejected: " + e.Why
}

// Is makes errors.Is true for ErrRejected and ErrPermanent.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected || target == ErrPermanent }

// RetryAfterError wraps an error and says when to try again.
type RetryAfterError struct {
	Err   error
	After time.Duration
}

// RetryAfter returns an error that asks for a retry after d instead of the backoff's delay, for example because a dependency has said
// when to try again. The attempt counts towards MaxRetries. A negative d means 0. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{err, max(0, d)}
}

func (e *RetryAfterError) Error() string        { return textOf(e.Unwrap(), ErrRetryAfter) }
func (e *RetryAfterError) Is(target error) bool { return target == ErrRetryAfter }

// Unwrap returns the error that is wrapped.
func (e *RetryAfterError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// postponeError wraps an error that is no fault of the message.
type postponeError struct{ Err error }

// Postpone returns an error that asks for another run after the backoff's delay without counting an attempt. A message that has
// been postponed for 24 h in a row goes to the DLQ, expired. Postpone(nil) is nil.
//
// The error of an open circuit breaker of sony/gobreaker (v1 and v2) has the same effect, also wrapped or joined. It is recognised
// by its text: any error of errors.New with exactly the text "circuit breaker is open". With RetryAfter around it, the attempt counts.
// The error "too many requests" of a half-open breaker counts as an attempt, because a handler may return the same text for an HTTP
// status 429. For that error, or for another breaker, set Policy.Classify.
func Postpone(err error) error {
	if err == nil {
		return nil
	}
	return &postponeError{err}
}

func (e *postponeError) Error() string        { return textOf(e.Unwrap(), ErrPostponed) }
func (e *postponeError) Is(target error) bool { return target == ErrPostponed }

// Unwrap returns the error that is wrapped.
func (e *postponeError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// PauseError wraps an error that concerns every message for a while.
type PauseError struct {
	Err      error
	Duration time.Duration
}

// Pause returns an error that postpones the message, as [Postpone] does, and pauses its subscription in this process: no message
// begins for d, neither a first delivery nor a retry. Then one message at a time runs as a probe. All run again after the first probe
// whose handler does not ask for another pause. Of several pauses, the one that ends last counts. A pause does not stop attempts that
// have begun, batches that gather messages, and suspects, which run alone. A d above [MaxPause] means MaxPause. With a d of 0 or less,
// Pause is Postpone. Pause(nil, d) is nil.
func Pause(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	if d <= 0 {
		return Postpone(err)
	}
	return &PauseError{err, min(d, MaxPause)}
}

// MaxPause is the longest pause that a handler can ask for with one error.
const MaxPause = time.Hour

func (e *PauseError) Error() string        { return textOf(e.Unwrap(), ErrPaused) }
func (e *PauseError) Is(target error) bool { return target == ErrPaused }

// Unwrap returns the error that is wrapped.
func (e *PauseError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// PanicError is the failure of an attempt whose handler panicked.
type PanicError struct {
	Value any
	Stack []byte // of the panicking goroutine
}

func (e *PanicError) Error() string {
	if e == nil {
		return ErrPanic.Error()
	}
	return fmt.Sprintf("panic: %v", e.Value)
}
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// Unwrap returns the value of the panic, if it is an error.
func (e *PanicError) Unwrap() error {
	if e == nil {
		return nil
	}
	err, _ := e.Value.(error)
	return err
}

// TimeoutError is the failure of an attempt whose handler was still running when its Timeout was over. The handler's
// goroutine continues, and its answer is ignored.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	if e == nil {
		return ErrTimeout.Error()
	}
	return fmt.Sprintf("handler still running after its timeout of %s", e.After)
}
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// InvalidError is the reason why Policy.Invalid refused a message.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string        { return textOf(e.Unwrap(), ErrInvalid) }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the error that is wrapped.
func (e *InvalidError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// CrashedError is the failure of a message that has run alone when its process died, MaxCrashes times.
type CrashedError struct{ Crashes int }

func (e *CrashedError) Error() string {
	return fmt.Sprintf("the process died %d times while it ran this message and no other", e.Crashes)
}

// Is makes errors.Is(err, ErrCrashed) true.
func (e *CrashedError) Is(target error) bool { return target == ErrCrashed }

// UndecodableError is the reason why a record cannot be decoded.
type UndecodableError struct{ Err error }

func (e *UndecodableError) Error() string        { return textOf(e.Unwrap(), ErrUndecodable) }
func (e *UndecodableError) Is(target error) bool { return target == ErrUndecodable }

// Unwrap returns the error that is wrapped.
func (e *UndecodableError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// UnschedulableError is a wait that the broker cannot hold.
type UnschedulableError struct {
	Wait, Max time.Duration
}

func (e *UnschedulableError) Error() string {
	if e == nil {
		return ErrUnschedulable.Error()
	}
	return fmt.Sprintf("a wait of %s is longer than the %s that can be held", e.Wait, e.Max)
}
func (e *UnschedulableError) Is(target error) bool { return target == ErrUnschedulable }

// textOf returns the text of a wrapped error, or of the sentinel if err is nil, as in an empty literal of an exported type.
func textOf(err, sentinel error) string {
	if err == nil {
		return sentinel.Error()
	}
	return err.Error()
}

// is and as are errors.Is and errors.As for users' errors, whose methods may panic, often because of a nil pointer of their type.
func is(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return errors.Is(err, target)
}

func as[T error](err error) (found T, yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	yes = errors.As(err, &found)
	return found, yes
}

// isOpenBreaker reports whether err wraps the error of an open circuit breaker of sony/gobreaker, which it recognises by its text.
func isOpenBreaker(err error) (yes bool) {
	defer func() {
		if recover() != nil { // in a method of a user's error
			yes = false
		}
	}()
	return wrapsBreakerError(err)
}

// plainError is the type of the errors of errors.New.
var plainError = reflect.TypeOf(errors.New(""))

func wrapsBreakerError(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it has its own way to unwrap
	case interface{ Unwrap() error }:
		return wrapsBreakerError(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), wrapsBreakerError)
	case nil:
		return false
	default:
		return reflect.TypeOf(err) == plainError && err.Error() == "circuit breaker is open"
	}
}
