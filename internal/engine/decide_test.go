package engine

import (
	"testing"

	"github.com/redeliver/redeliver"
)

// Texts that differ in numbers have one cause. Another type or text is another cause.
func TestTextsThatDifferInNumbersHaveOneCause(t *testing.T) {
	cause := func(kind, text string) uint64 { return causeOf(&redeliver.State{ErrorType: kind, Error: text}) }
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

// An outage postpones messages that would be retried or have no retries left, but not those that caused their failure
// or have reached a time limit.
func TestIsPostponable(t *testing.T) {
	postponed := map[redeliver.Reason]bool{redeliver.ReasonExhausted: true, redeliver.ReasonTimeout: true, redeliver.ReasonPanic: true}
	for _, reason := range redeliver.Reasons() {
		d := redeliver.Decision{Action: redeliver.ActionDeadLetter, State: redeliver.State{Reason: reason}}
		if isPostponable(&d) != postponed[reason] {
			t.Errorf("%s: %t", reason, isPostponable(&d))
		}
	}
	if isPostponable(&redeliver.Decision{Action: redeliver.ActionRetryLater, MessageAtFault: true}) {
		t.Error("a message at fault is postponed")
	}
	for action, want := range map[redeliver.Action]bool{redeliver.ActionRetryNow: true, redeliver.ActionRetryLater: true, redeliver.ActionCommit: false, redeliver.ActionPostpone: false} {
		if d := (redeliver.Decision{Action: action}); isPostponable(&d) != want {
			t.Errorf("%s: %t", action, isPostponable(&d))
		}
	}
}
