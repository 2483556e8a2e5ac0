package redeliver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

func TestABlockingPolicyIsCheckedAtStart(t *testing.T) {
	for name, test := range map[string]struct {
		policy redeliver.Policy
		field  string // that is refused; empty for none
	}{
		"default":          {redeliver.Policy{Order: redeliver.OrderBlocking}, ""},
		"the longest":      {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(30 * time.Second)}, ""},
		"the shortest":     {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(10 * time.Millisecond)}, ""},
		"too long":         {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Steps(time.Second, 31*time.Second)}, "Policy.Backoff"},
		"too short":        {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(9 * time.Millisecond)}, "Policy.Backoff"},
		"too much jitter":  {redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 9, Backoff: redeliver.Exponential()}, "Policy.Backoff"},
		"with the jitter":  {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.ExponentialBackoff{Base: 16 * time.Second, Max: 20 * time.Second}}, "Policy.Backoff"},
		"unlisted":         {redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: unlisted{}}, "Policy.Backoff"},
		"no such order":    {redeliver.Policy{Order: 17}, "Policy.Order"},
		"the last order":   {redeliver.Policy{Order: redeliver.OrderThroughRetries}, ""},
		"not for it":       {redeliver.Policy{Backoff: redeliver.Fixed(time.Hour)}, ""},
		"of the unordered": {redeliver.Policy{Order: redeliver.OrderNone, Backoff: redeliver.Fixed(time.Hour)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.policy.Validate("Policy")
			var refused *redeliver.ConfigError
			switch {
			case test.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.field != "" && (!errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Field != test.field):
				t.Errorf("got %v, want one problem with %s", err, test.field)
			}
		})
	}
}

// unlisted is a Backoff that is not a DelayLister.
type unlisted struct{}

func (unlisted) Delay(int, float64) (time.Duration, bool) { return time.Second, true }

// The problem shows the wait with its jitter.
func TestALongWaitOfABlockingPolicyIsReportedWithItsJitter(t *testing.T) {
	p := redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.ExponentialBackoff{Base: 16 * time.Second, Max: 20 * time.Second}}
	if err := p.Validate("P"); err == nil || !strings.Contains(err.Error(), "P.Backoff is 32s: must wait for 10ms to 30s, jitter included") {
		t.Errorf("got %v", err)
	}
}
