// Package breaker_test checks what redeliver assumes about the errors of sony/gobreaker with the real package:
// redeliver recognises one of them by its text and does not import the package.
package breaker_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/redeliver/redeliver"
)

// A message that an open breaker rejects is postponed. A message that a half-open breaker rejects during its probe has
// an ordinary retry, because other programs also use the text of that error.
func TestAnOpenBreakerPostpones(t *testing.T) {
	t.Parallel()
	breaker := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		Timeout:     time.Nanosecond, // after which it is half open
		MaxRequests: 1,
		ReadyToTrip: func(gobreaker.Counts) bool { return true },
	})
	slow := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		Timeout:     time.Hour,
		ReadyToTrip: func(gobreaker.Counts) bool { return true },
	})
	errBank := errors.New("the bank is closed")
	fails := func() (int, error) { return 0, errBank }
	decide := func(err error) redeliver.Action {
		return redeliver.Policy{}.Decide(redeliver.State{ID: "1"}, fmt.Errorf("charge: %w", err), time.Now()).Action
	}

	for _, b := range []*gobreaker.CircuitBreaker[int]{breaker, slow} {
		if _, err := b.Execute(fails); decide(err) != redeliver.ActionRetryLater {
			t.Fatalf("the failure that trips the breaker (%v): %s, want an ordinary retry", err, decide(err))
		}
	}
	if _, err := slow.Execute(fails); !errors.Is(err, gobreaker.ErrOpenState) || decide(err) != redeliver.ActionPostpone {
		t.Errorf("the breaker is %s (%v): %s, want it postponed", slow.State(), err, decide(err))
	}
	for breaker.State() != gobreaker.StateHalfOpen {
		runtime.Gosched() // a nanosecond passes
	}
	_, _ = breaker.Execute(func() (int, error) {
		if _, err := breaker.Execute(fails); !errors.Is(err, gobreaker.ErrTooManyRequests) || decide(err) != redeliver.ActionRetryLater {
			t.Errorf("the breaker is %s and busy (%v): %s, want an ordinary retry", breaker.State(), err, decide(err))
		}
		return 0, nil
	})
}
