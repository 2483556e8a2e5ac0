package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// The policy of the process that handles a message decides about it, whichever policy planned its wait.
func TestTheRunningPolicyDecides(t *testing.T) {
	is := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Hour), MaxAge: 10 * time.Hour}
	for name, c := range map[string]struct {
		attempts int
		action   redeliver.Action
		delay    time.Duration
	}{
		"a first failure":                {0, redeliver.ActionRetryLater, time.Hour},
		"a message of another":           {1, redeliver.ActionRetryLater, time.Hour},
		"its last attempt":               {3, redeliver.ActionDeadLetter, 0},
		"more attempts than this allows": {7, redeliver.ActionDeadLetter, 0},
	} {
		sub := newBroker(is).sub
		sub.Start()
		dec := sub.Decide(redeliver.State{ID: "a", Attempts: c.attempts, Policy: "0123456789abcdef"}, errOurs, time.Now())
		if dec.Action != c.action || dec.Delay != c.delay || dec.State.Policy != sub.Fingerprint() || dec.State.Attempts != c.attempts+1 {
			t.Errorf("%s: %s after %s as %+v; want %s after %s", name, dec.Action, dec.Delay, dec.State, c.action, c.delay)
		}
	}
}

// A message that another policy wrote long after this process saw the first such message is a sign of another instance.
// It is reported once an hour for each policy.
func TestAnotherPolicyThatWritesNowIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{})
		sub := j.sub
		sub.Start()
		meet := func(policy string, failed time.Time) {
			sub.CheckPolicyOf(&redeliver.State{ID: "a", Attempts: 1, Policy: policy, LastFailed: failed})
		}
		want := func(when string, n int) {
			t.Helper()
			if got := j.changes(); len(got) != n || slices.ContainsFunc(got, func(c string) bool { return c != "policies differ" }) {
				t.Errorf("%s: reported %q, want %d times", when, got, n)
			}
		}
		began := time.Now()
		meet("other", began.Add(-time.Hour)) // from before the deploy
		<-time.After(30 * time.Minute)
		meet(sub.Fingerprint(), time.Now())
		meet("", time.Now())
		meet("other", began.Add(-time.Second))   // it waited for a long time
		meet("other", began.Add(20*time.Second)) // a drain, or a clock that is ahead
		want("nobody else writes", 0)
		meet("other", time.Now())
		meet("other", time.Now())
		want("another writes", 1)
		meet("third", time.Now())
		want("and a third", 2)
		<-time.After(time.Hour)
		meet("other", time.Now())
		want("an hour later", 3)
		last := events[redeliver.SubscriptionChanged](j)[2]
		if last.Origin != sub.Origin || last.Group != sub.Group || !errors.Is(last.Err, engine.ErrPolicies) || last.Detail == "" {
			t.Errorf("reported %+v", last)
		}
		for i := range 1000 {
			meet(fmt.Sprint("policy ", i), time.Now())
		}
		if n := len(j.changes()); n > 110 {
			t.Errorf("%d policies are kept", n)
		}
	})
}
