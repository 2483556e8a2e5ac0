package redeliver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

func TestProblemsOfNumbersAndDurations(t *testing.T) {
	for want, check := range map[string]func(*redeliver.Problems){
		"N is 0: must be from 1 to 5, or 0 for the default":      func(ps *redeliver.Problems) { ps.CheckCount("N", 0, 1, 5) },
		"N is 6: must be from 1 to 5, or 0 for the default":      func(ps *redeliver.Problems) { ps.CheckCount("N", 6, 1, 5) },
		"N is -1: must be at least 1, or 0 for the default":      func(ps *redeliver.Problems) { ps.CheckCount("N", -1, 1, 0) },
		"N is -1: must not be negative; 0 for the default":       func(ps *redeliver.Problems) { ps.CheckCount("N", -1, 0, 0) },
		"D is 3s: must be from 0s to 2s, or 0 for the default":   func(ps *redeliver.Problems) { ps.CheckDuration("D", 3*time.Second, 0, 2*time.Second) },
		"D is -1s: must be at least 1ns, or 0 for the default":   func(ps *redeliver.Problems) { ps.CheckDuration("D", -time.Second, time.Nanosecond, 0) },
		"P.MaxAge is -1ns: must not be negative; 0 for no bound": func(ps *redeliver.Problems) { ps.CheckPolicy("P", redeliver.Policy{MaxAge: -1}) },
		"": func(ps *redeliver.Problems) {
			ps.CheckCount("N", 1, 1, 5)
			ps.CheckCount("N", 5, 1, 5)
			ps.CheckCount("N", 1<<40, 1, 0)
			ps.CheckCount("N", 0, 0, 0)
			ps.CheckDuration("D", 2*time.Second, 0, 2*time.Second)
			ps.CheckDuration("D", redeliver.MaxWait, 0, 0)
			ps.CheckPolicy("P", redeliver.Policy{})
		},
	} {
		var ps redeliver.Problems
		check(&ps)
		refused, _ := errors.AsType[*redeliver.ConfigError](ps.Err())
		switch {
		case want == "" && refused != nil:
			t.Errorf("got %v, want no problem", refused)
		case want != "" && (refused == nil || len(refused.Problems) != 1 || refused.Problems[0].String() != want):
			t.Errorf("got %v, want %q alone", refused, want)
		}
	}
}
