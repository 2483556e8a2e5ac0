package redeliver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// The text of a postponed failure is that of ErrorText for the handler's error.
func TestPostponeKeepsTheText(t *testing.T) {
	p := redeliver.Policy{ErrorText: func(err error) string {
		if strings.HasPrefix(fmt.Sprintf("%T", err), "*redeliver.") {
			return "wrapped"
		}
		return "own text"
	}}
	d := p.Postpone(redeliver.State{ID: "a", Attempts: 3}, errors.New("boom"), now)
	if d.Action != redeliver.ActionPostpone || d.State.Error != "own text" || d.State.ErrorType != "*errors.errorString" || d.State.Attempts != 3 || d.State.PostponedSince.IsZero() {
		t.Errorf("%+v", d)
	}
}

// The wait is that of RetryAfter, or otherwise the backoff's delay.
func TestPostponeWaitsForRetryAfterOrBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an error":      {errBoom, 10 * time.Second},
		"RetryAfter":    {redeliver.RetryAfter(errBoom, time.Minute), time.Minute},
		"RetryAfter 0":  {redeliver.RetryAfter(errBoom, 0), 10 * time.Second},
		"RetryAfter -1": {redeliver.RetryAfter(errBoom, -time.Second), 10 * time.Second},
		"for ages":      {redeliver.RetryAfter(errBoom, 2*redeliver.MaxWait), 24 * time.Hour}, // a message is put aside for a day at most
	} {
		p := redeliver.Policy{Backoff: redeliver.Fixed(10 * time.Second)}
		if d := p.Postpone(redeliver.State{ID: "a"}, c.err, now); d.Action != redeliver.ActionPostpone || d.Delay != c.want || d.State.Attempts != 0 {
			t.Errorf("%s: %s for %s after %d attempts, want %s", name, d.Action, d.Delay, d.State.Attempts, c.want)
		}
	}
}
