package delayqueue_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// A plan says how much jitter each delay has: a share of it, but none beyond the backoff's Max.
func TestAPlanHasTheJitterOfEachDelay(t *testing.T) {
	for name, c := range map[string]struct {
		backoff        redeliver.Backoff
		delays, jitter []time.Duration
	}{
		"up to Base":       {redeliver.Exponential(), []time.Duration{second, 2 * second, 4 * second}, []time.Duration{second, second, second}},
		"a share":          {redeliver.ExponentialBackoff{Factor: 3, Jitter: 0.5, Max: 10 * second}, []time.Duration{second, 3 * second, 9 * second}, []time.Duration{500 * ms, 1500 * ms, second}},
		"a share at Max":   {redeliver.ExponentialBackoff{Factor: 10, Jitter: 0.5, Max: 10 * second}, []time.Duration{second, 10 * second, 10 * second}, []time.Duration{500 * ms, 0, 0}},
		"without a jitter": {redeliver.Fixed(second), []time.Duration{second, second, second}, []time.Duration{0, 0, 0}},
	} {
		all, listed := delayqueue.PlanDelays(redeliver.Policy{MaxRetries: 4, Immediate: 1, Backoff: c.backoff}, func(time.Duration) ([]time.Duration, string) { return nil, "held" })
		var delays, jitter []time.Duration
		for _, d := range all {
			delays, jitter = append(delays, d.Delay), append(jitter, d.Jitter)
		}
		if !listed || !reflect.DeepEqual(delays, append([]time.Duration{0}, c.delays...)) || !reflect.DeepEqual(jitter, append([]time.Duration{0}, c.jitter...)) {
			t.Errorf("%s: the plan waits %v and jitters %v, want %v and %v", name, delays, jitter, c.delays, c.jitter)
		}
	}
}
