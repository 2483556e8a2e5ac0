package redeliver_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// pair is a sentinel with its typed error.
type pair struct {
	err      error
	sentinel error
	as       func(error) bool // finds the typed error, with its details
	text     string
}

func pairs() map[string]pair {
	return map[string]pair{
		"permanent": {redeliver.Permanent(errBoom), redeliver.ErrPermanent, func(err error) bool {
			return errors.Is(err, redeliver.ErrPermanent) && errors.Is(err, errBoom)
		}, "boom"},
		"retry after": {redeliver.RetryAfter(errBoom, time.Minute), redeliver.ErrRetryAfter, func(err error) bool {
			var e *redeliver.RetryAfterError
			return errors.As(err, &e) && errors.Is(e.Err, errBoom) && e.After == time.Minute
		}, "boom"},
		"postpone": {redeliver.Postpone(errBoom), redeliver.ErrPostponed, func(err error) bool {
			return errors.Is(err, redeliver.ErrPostponed) && errors.Is(err, errBoom)
		}, "boom"},
		"pause": {redeliver.Pause(errBoom, time.Minute), redeliver.ErrPaused, func(err error) bool {
			var e *redeliver.PauseError
			return errors.As(err, &e) && errors.Is(e.Err, errBoom) && e.Duration == time.Minute
		}, "boom"},
		"panic": {&redeliver.PanicError{Value: errBoom, Stack: []byte("x")}, redeliver.ErrPanic, func(err error) bool {
			var e *redeliver.PanicError
			return errors.As(err, &e) && errors.Is(e, errBoom) && len(e.Stack) == 1
		}, "panic: boom"},
		"timeout": {&redeliver.TimeoutError{After: time.Minute}, redeliver.ErrTimeout, func(err error) bool {
			var e *redeliver.TimeoutError
			return errors.As(err, &e) && e.After == time.Minute
		}, "handler still running after its timeout of 1m0s"},
		"invalid": {&redeliver.InvalidError{Err: errBoom}, redeliver.ErrInvalid, func(err error) bool {
			var e *redeliver.InvalidError
			return errors.As(err, &e) && errors.Is(e.Err, errBoom)
		}, "boom"},
		"undecodable": {&redeliver.UndecodableError{Err: errBoom}, redeliver.ErrUndecodable, func(err error) bool {
			var e *redeliver.UndecodableError
			return errors.As(err, &e) && errors.Is(e.Err, errBoom)
		}, "boom"},
		"unschedulable": {&redeliver.UnschedulableError{Wait: 2, Max: 1}, redeliver.ErrUnschedulable, func(err error) bool {
			var e *redeliver.UnschedulableError
			return errors.As(err, &e) && e.Wait == 2 && e.Max == 1
		}, "a wait of 2ns is longer than the 1ns that can be held"},
		"config": {&redeliver.ConfigError{Problems: []redeliver.Problem{{Field: "A", Value: 1, Rule: "must be 2"}}}, redeliver.ErrConfig, func(err error) bool {
			var e *redeliver.ConfigError
			return errors.As(err, &e) && len(e.Problems) == 1
		}, "configuration refused: A is 1: must be 2"},
	}
}

// errors.Is finds the sentinel and errors.As the details through every wrapper, and no error has the sentinel of another.
func TestErrorsAreFoundThroughWrapsAndJoins(t *testing.T) {
	all := pairs()
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			if p.err.Error() != p.text {
				t.Errorf("text %q, want %q", p.err, p.text)
			}
			for how, err := range map[string]error{
				"plain":        p.err,
				"wrapped":      fmt.Errorf("two: %w", fmt.Errorf("one: %w", p.err)),
				"joined":       errors.Join(errors.New("other"), p.err),
				"joined twice": errors.Join(errors.Join(p.err, errors.New("other")), errors.New("third")),
				"both":         fmt.Errorf("%w, %w", errors.New("other"), errors.Join(fmt.Errorf("x: %w", p.err))),
			} {
				if !errors.Is(err, p.sentinel) || !p.as(err) {
					t.Errorf("%s: Is %t, As %t, want both", how, errors.Is(err, p.sentinel), p.as(err))
				}
				for other, q := range all {
					if other != name && (errors.Is(err, q.sentinel) || q.as(err)) {
						t.Errorf("%s: is also %s", how, other)
					}
				}
			}
		})
	}
}

// errors.Is finds the user's error.
func TestErrorsKeepTheirCause(t *testing.T) {
	for _, err := range []error{
		redeliver.Permanent(errBoom), redeliver.RetryAfter(errBoom, 1), redeliver.Postpone(errBoom),
		&redeliver.InvalidError{Err: errBoom}, &redeliver.UndecodableError{Err: errBoom}, &redeliver.PanicError{Value: errBoom},
		redeliver.Permanent(redeliver.RetryAfter(errBoom, 1)),
	} {
		if !errors.Is(fmt.Errorf("x: %w", err), errBoom) {
			t.Errorf("%T hides its cause", err)
		}
	}
	if err := errors.Unwrap(&redeliver.PanicError{Value: "text"}); err != nil {
		t.Errorf("a panic with a text wraps %v", err)
	}
}

// A handler may end with `return redeliver.Permanent(err)` whether err is nil or not.
func TestNoErrorStaysNoError(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": redeliver.Permanent(nil), "RetryAfter": redeliver.RetryAfter(nil, time.Hour), "Postpone": redeliver.Postpone(nil),
		"Validate": redeliver.Policy{}.Validate(""),
	} {
		if err != nil {
			t.Errorf("%s of a nil error is %v", name, err)
		}
	}
}

func TestRetryAfterIsNeverNegative(t *testing.T) {
	var e *redeliver.RetryAfterError
	if err := redeliver.RetryAfter(errBoom, -time.Hour); !errors.As(err, &e) || e.After != 0 {
		t.Errorf("waits %s, want 0", e.After)
	}
}

func TestConfigErrorListsAllProblems(t *testing.T) {
	refused := &redeliver.ConfigError{Problems: []redeliver.Problem{
		{Field: "Brokers", Value: "[]", Rule: "must name at least one"},
		{Field: "Group", Value: `""`, Rule: "must not be empty"},
		{Field: "MaxInFlight", Value: -3, Rule: "must be positive"},
	}}
	want := `configuration refused: Brokers is []: must name at least one; Group is "": must not be empty; MaxInFlight is -3: must be positive`
	if refused.Error() != want {
		t.Errorf("error\n got %v\nwant %s", refused, want)
	}
}
