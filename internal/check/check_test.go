package check_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

func TestProblemsOfNumbersAndDurations(t *testing.T) {
	for want, test := range map[string]func(*check.Problems){
		"N is 0: must be from 1 to 5, or 0 for the default":      func(ps *check.Problems) { ps.CheckCount("N", 0, 1, 5) },
		"N is 6: must be from 1 to 5, or 0 for the default":      func(ps *check.Problems) { ps.CheckCount("N", 6, 1, 5) },
		"N is -1: must be at least 1, or 0 for the default":      func(ps *check.Problems) { ps.CheckCount("N", -1, 1, 0) },
		"N is -1: must not be negative; 0 for the default":       func(ps *check.Problems) { ps.CheckCount("N", -1, 0, 0) },
		"D is 3s: must be from 0s to 2s, or 0 for the default":   func(ps *check.Problems) { ps.CheckDuration("D", 3*time.Second, 0, 2*time.Second) },
		"D is -1s: must be at least 1ns, or 0 for the default":   func(ps *check.Problems) { ps.CheckDuration("D", -time.Second, time.Nanosecond, 0) },
		"P.MaxAge is -1ns: must not be negative; 0 for no bound": func(ps *check.Problems) { ps.CheckPolicy("P", redeliver.Policy{MaxAge: -1}) },
		"": func(ps *check.Problems) {
			ps.CheckCount("N", 1, 1, 5)
			ps.CheckCount("N", 5, 1, 5)
			ps.CheckCount("N", 1<<40, 1, 0)
			ps.CheckCount("N", 0, 0, 0)
			ps.CheckDuration("D", 2*time.Second, 0, 2*time.Second)
			ps.CheckDuration("D", redeliver.MaxWait, 0, 0)
			ps.CheckPolicy("P", redeliver.Policy{})
		},
	} {
		var ps check.Problems
		test(&ps)
		refused, _ := errors.AsType[*redeliver.ConfigError](ps.Err())
		switch {
		case want == "" && refused != nil:
			t.Errorf("got %v, want no problem", refused)
		case want != "" && (refused == nil || len(refused.Problems) != 1 || refused.Problems[0].String() != want):
			t.Errorf("got %v, want %q alone", refused, want)
		}
	}
}

func TestCheckOrderRefusesUnsupportedOrders(t *testing.T) {
	var ps check.Problems
	ps.CheckOrder("Policy", redeliver.Policy{Order: redeliver.OrderNone}, redeliver.OrderFirstAttempts, redeliver.OrderNone)
	if ps.Err() != nil {
		t.Errorf("refused: %v", ps.Err())
	}
	for _, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
		ps = nil
		ps.CheckOrder("Policy", redeliver.Policy{Order: order}, redeliver.OrderFirstAttempts, redeliver.OrderNone)
		if want := "Policy.Order is " + order.String() + ": must be one of [OrderFirstAttempts OrderNone] here"; len(ps) != 1 || ps[0].String() != want {
			t.Errorf("got %v, want %q", ps, want)
		}
	}
	ps = nil
	if ps.CheckOrder("Policy", redeliver.Policy{Order: 17}, redeliver.OrderFirstAttempts); ps.Err() != nil {
		t.Errorf("%v: Validate must refuse it", ps.Err())
	}
}

func TestNoProblemsAreNoError(t *testing.T) {
	var included check.Problems
	included.Include(redeliver.Policy{}.Validate("Policy"))
	included.Include(errors.New("not of a configuration"))
	for _, ps := range []check.Problems{nil, {}, included} {
		if err := ps.Err(); err != nil {
			t.Errorf("%v is an error: %v", ps, err)
		}
	}
}
