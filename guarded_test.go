package redeliver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// Texts that differ in numbers have one cause. Another type or text is another cause.
func TestCause(t *testing.T) {
	cause := func(kind, text string) uint64 { return (&redeliver.State{ErrorType: kind, Error: text}).Cause() }
	one := cause("*net.OpError", "dial tcp 10.0.0.1:5432: refused for order 17")
	for _, c := range []struct {
		kind, text string
		same       bool
	}{
		{"*net.OpError", "dial tcp 10.0.0.9:5432: refused for order 18", true},
		{"*net.DNSError", "dial tcp 10.0.0.1:5432: refused for order 17", false},
		{"*net.OpError", "dial tcp 10.0.0.1:5432: reset for order 17", false},
		{"", "*net.OpErrordial tcp 10.0.0.1:5432: refused for order 17", false},
	} {
		if got := cause(c.kind, c.text) == one; got != c.same {
			t.Errorf("%s %q: %t", c.kind, c.text, got)
		}
	}
}

// The text of a postponed failure is that of ErrorText for the handler's error.
func TestPostponeKeepsTheText(t *testing.T) {
	p := redeliver.Policy{ErrorText: func(err error) string {
		if strings.HasPrefix(fmt.Sprintf("%T", err), "*redeliver.") {
			return "wrapped"
		}
		return "own text"
	}}
	d := p.Postpone(redeliver.State{ID: "a", Attempts: 3}, errors.New("boom"), now)
	if d.Action != redeliver.Postponed || d.State.Error != "own text" || d.State.ErrorType != "*errors.errorString" || d.State.Attempts != 3 || d.State.PostponedSince.IsZero() {
		t.Errorf("%+v", d)
	}
}

// The wait is that of RetryAfter, else the backoff's delay.
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
		if d := p.Postpone(redeliver.State{ID: "a"}, c.err, now); d.Action != redeliver.Postponed || d.Delay != c.want || d.State.Attempts != 0 {
			t.Errorf("%s: %s for %s after %d attempts, want %s", name, d.Action, d.Delay, d.State.Attempts, c.want)
		}
	}
}

// An outage postpones messages that would be retried or have no retries left, not those that are to blame or have met a limit in time.
func TestSparable(t *testing.T) {
	spared := map[redeliver.Reason]bool{redeliver.ReasonExhausted: true, redeliver.ReasonTimeout: true, redeliver.ReasonPanic: true}
	for _, reason := range allReasons {
		d := redeliver.Decision{Action: redeliver.DeadLetter, State: redeliver.State{Reason: reason}}
		if d.Sparable() != spared[reason] {
			t.Errorf("%s: %t", reason, d.Sparable())
		}
	}
	for action, want := range map[redeliver.Action]bool{redeliver.RetryNow: true, redeliver.RetryLater: true, redeliver.Commit: false, redeliver.Postponed: false} {
		if d := (redeliver.Decision{Action: action}); d.Sparable() != want {
			t.Errorf("%s: %t", action, d.Sparable())
		}
	}
}
