package redeliver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// A stretched wait is the message's own, between half of the factor and all of it, and
// breaks no other promise.
func TestStretch(t *testing.T) {
	for name, c := range map[string]struct {
		policy      redeliver.Policy
		state       redeliver.State
		err         error
		factor      int
		most        time.Duration
		least, less time.Duration // the wait: from least to less
	}{
		"once":                     {redeliver.Policy{Backoff: redeliver.Fixed(time.Second)}, redeliver.State{}, errBoom, 1, 0, time.Second, time.Second},
		"twice":                    {redeliver.Policy{Backoff: redeliver.Fixed(time.Second)}, redeliver.State{}, errBoom, 2, 0, time.Second, 2 * time.Second},
		"8 times":                  {redeliver.Policy{Backoff: redeliver.Fixed(time.Second)}, redeliver.State{}, errBoom, 8, 0, 4 * time.Second, 8 * time.Second},
		"not above an hour":        {redeliver.Policy{Backoff: redeliver.Fixed(40 * time.Minute)}, redeliver.State{}, errBoom, 8, 0, time.Hour, time.Hour},
		"not what is longer":       {redeliver.Policy{Backoff: redeliver.Fixed(2 * time.Hour)}, redeliver.State{}, errBoom, 8, 0, 2 * time.Hour, 2 * time.Hour},
		"what the broker can hold": {redeliver.Policy{Backoff: redeliver.Fixed(time.Minute)}, redeliver.State{}, errBoom, 8, 90 * time.Second, 90 * time.Second, 90 * time.Second},
		"not past MaxAge":          {redeliver.Policy{Backoff: redeliver.Fixed(time.Minute), MaxAge: 61 * time.Second}, redeliver.State{}, errBoom, 8, 0, time.Minute, time.Minute},
		"not past its end":         {redeliver.Policy{Backoff: redeliver.Fixed(time.Minute)}, redeliver.State{Expires: now.Add(61 * time.Second)}, errBoom, 8, 0, time.Minute, time.Minute},
		"what it asked for, too":   {redeliver.Policy{}, redeliver.State{}, redeliver.RetryAfter(errBoom, time.Minute), 2, 0, time.Minute, 2 * time.Minute},
		"a retry at once waits":    {redeliver.Policy{Immediate: 1, Backoff: redeliver.Fixed(time.Second)}, redeliver.State{}, errBoom, 2, 0, time.Second, 2 * time.Second},
		"but not for factor 1":     {redeliver.Policy{Immediate: 1, Backoff: redeliver.Fixed(time.Second)}, redeliver.State{}, errBoom, 1, 0, 0, 0},
		"unless it is its last":    {redeliver.Policy{Immediate: 1, Backoff: redeliver.Fixed(time.Minute), MaxAge: time.Second}, redeliver.State{}, errBoom, 2, 0, 0, 0},
		"the dead do not wait":     {redeliver.Policy{MaxRetries: redeliver.NoRetries}, redeliver.State{}, errBoom, 8, 0, 0, 0},
	} {
		seen := make(map[time.Duration]bool)
		for i := range 20 {
			st := c.state
			st.ID, st.FirstFailed = fmt.Sprint("m-", i), now
			d := c.policy.Decide(st, c.err, now)
			before := d.Action
			c.policy.Stretch(&d, c.factor, c.most, now)
			again := c.policy.Decide(st, c.err, now)
			if c.policy.Stretch(&again, c.factor, c.most, now); again.Delay != d.Delay || !again.State.Due.Equal(d.State.Due) {
				t.Errorf("%s: a copy waits %s, and not %s", name, again.Delay, d.Delay)
			}
			if d.Delay < c.least || d.Delay > c.less || d.Delay > 0 && !d.State.Due.Equal(redeliver.CeilMilli(now.Add(d.Delay))) || before != redeliver.RetryNow && d.Action != before {
				t.Errorf("%s: %s for %s until %s, want %s to %s", name, d.Action, d.Delay, d.State.Due, c.least, c.less)
			}
			seen[d.Delay] = true
		}
		if c.least < c.less && len(seen) < 15 {
			t.Errorf("%s: only %d waits of 20 messages", name, len(seen))
		}
	}
}

func TestCutShort(t *testing.T) {
	d := redeliver.Policy{}.Decide(redeliver.State{ID: "a", Attempts: 1}, errBoom, now)
	d.CutShort("poison: it alone fails")
	if d.Action != redeliver.DeadLetter || d.State.Reason != redeliver.ReasonExhausted || !d.State.Due.IsZero() || d.State.Attempts != 2 ||
		d.State.Error != "poison: it alone fails; the failure was: "+errBoom.Error() {
		t.Errorf("%+v", d)
	}
}

// One cause, whatever the numbers; another type or text is another cause.
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

// The text of a failure that is postponed is the handler's, as ErrorText writes it.
func TestPostponeIntoKeepsTheText(t *testing.T) {
	p := redeliver.Policy{ErrorText: func(err error) string {
		if strings.HasPrefix(fmt.Sprintf("%T", err), "*redeliver.") {
			return "wrapped"
		}
		return "own text"
	}}
	d := redeliver.Decision{State: redeliver.State{ID: "a", Attempts: 3}}
	p.PostponeInto(&d, errors.New("boom"), now)
	if d.Action != redeliver.Postponed || d.State.Error != "own text" || d.State.ErrorType != "*errors.errorString" || d.State.Attempts != 3 || d.State.PostponedSince.IsZero() {
		t.Errorf("%+v", d)
	}
}

// What asks for a wait is put aside for so long; what asks for none of its own, or for
// nothing, for the backoff's delay.
func TestPostponeIntoWaitsAsItIsTold(t *testing.T) {
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
		d := redeliver.Decision{State: redeliver.State{ID: "a"}}
		if p.PostponeInto(&d, c.err, now); d.Action != redeliver.Postponed || d.Delay != c.want || d.State.Attempts != 0 {
			t.Errorf("%s: %s for %s after %d attempts, want %s", name, d.Action, d.Delay, d.State.Attempts, c.want)
		}
	}
}

// An outage spares what would be retried, or has failed too often: not what is at fault
// itself, and not what has met a limit in time.
func TestSparable(t *testing.T) {
	spared := map[redeliver.Reason]bool{redeliver.ReasonExhausted: true, redeliver.ReasonTimeout: true, redeliver.ReasonPanic: true}
	for _, reason := range reasons {
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
