package backofftext_test

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/backofftext"
)

// Parse or the policy refuses a bad backoff, and no wait is negative.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"exponential", "exponential:1s,60s", "exponential:60s,1s", "exponential:1s,60s,factor=3,jitter=0.2", "exponential:factor=nan", "exponential:jitter=-1", "fixed:1s", "fixed:", "fixed:-1s", "steps:1s,1h,1ns", "steps:2562047h,1s", "rocketmq", "rocketmq:1s", ":", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := backofftext.Parse(text)
		if (b == nil) == (err == nil) {
			t.Fatalf("%q: %v and %v", text, b, err)
		}
		if err != nil {
			return
		}
		p := redeliver.Policy{MaxRetries: 20, Backoff: b}
		if p.Validate("Policy") != nil {
			return
		}
		for n := range 20 {
			for _, draw := range []float64{0, 0.999999} {
				if d, ok := b.Delay(n, draw); ok && (d <= 0 || d > redeliver.MaxWait) {
					t.Errorf("%q: retry %d waits %s", text, n+1, d)
				}
			}
		}
	})
}
