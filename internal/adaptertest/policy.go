package adaptertest

import (
	"errors"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// policies tests that an impossible policy is refused at the start (promise 5).
func policies() []test {
	return []test{
		{name: "ABadPolicyIsRefusedWithAllItsProblems", router: true, body: badPolicy},
	}
}

func badPolicy(b *fixture) {
	bad := redeliver.Policy{
		MaxRetries: -5, Immediate: 7, Timeout: -3, MaxAge: -1, MaxCrashes: -1,
		Backoff: redeliver.Fixed(redeliver.MaxWait + 1),
		Levels:  []time.Duration{time.Second, 100 * time.Millisecond},
	}
	svc, err := b.h.Open(b.T, Config{Origin: b.origin, Group: b.group, Policy: bad})
	if err == nil {
		svc.Kill()
		b.Fatal("an invalid policy was accepted")
	}
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || !errors.Is(err, redeliver.ErrConfig) {
		b.Fatalf("refused with a %T, want a redeliver.ConfigError: %v", err, err)
	}
	for _, field := range []string{"MaxRetries", "Immediate", "Timeout", "MaxAge", "MaxCrashes", "Backoff", "Levels[1]"} {
		found := false
		for _, p := range refused.Problems {
			found = found || strings.HasSuffix(p.Field, "."+field) && p.Rule != ""
		}
		if !found {
			b.Errorf("%s is not mentioned: %v", field, err)
		}
	}
}
