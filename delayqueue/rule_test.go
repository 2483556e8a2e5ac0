package delayqueue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// A message that failed under another rule is decided by that, and carries it on; one
// that says nothing of a rule is decided by the policy, and carries its.
func TestAMessageFinishesByTheRuleThatItBrings(t *testing.T) {
	was := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(10*second, minute)}
	is := redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(hour)}.WithDefaults()
	deaf := is
	deaf.Supersede = true
	unlisted := is
	unlisted.Backoff = function{}
	for name, c := range map[string]struct {
		policy   redeliver.Policy
		brings   string // schedule
		attempts int
		action   redeliver.Action
		delay    time.Duration
		carries  string
	}{
		"a first failure":             {is, "", 0, redeliver.RetryLater, hour, is.Schedule()},
		"its own":                     {is, is.Schedule(), 3, redeliver.RetryLater, hour, is.Schedule()},
		"an older one":                {is, was.Schedule(), 1, redeliver.RetryLater, minute, was.Schedule()},
		"an older one, at its end":    {is, was.Schedule(), 2, redeliver.DeadLetter, 0, was.Schedule()},
		"an older one, superseded":    {deaf, was.Schedule(), 2, redeliver.RetryLater, hour, is.Schedule()},
		"one that says nothing":       {is, "", 2, redeliver.RetryLater, hour, is.Schedule()},
		"one that is none":            {is, "nonsense", 2, redeliver.RetryLater, hour, is.Schedule()},
		"a policy that lists nothing": {unlisted, "", 0, redeliver.RetryLater, 3 * second, ""},
		"behind an older one":         {unlisted, was.Schedule(), 1, redeliver.RetryLater, minute, was.Schedule()},
	} {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		sub.Policy = c.policy
		dec := sub.Decide(redeliver.State{ID: "a", Attempts: c.attempts, Schedule: c.brings, Policy: "0123456789abcdef"}, errOurs, time.Now())
		if dec.Action != c.action || dec.Delay != c.delay || dec.State.Schedule != c.carries || dec.State.Policy != sub.Fingerprint() {
			t.Errorf("%s: %s after %s, by %q under %s; want %s after %s by %q", name, dec.Action, dec.Delay, dec.State.Schedule, dec.State.Policy, c.action, c.delay, c.carries)
		}
	}
}

// A producer that forges a retry gets no more of them than the policy gives.
func TestAForgedRuleGivesNoMoreThanThePolicy(t *testing.T) {
	is := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(hour), MaxAge: 10 * hour}.WithDefaults()
	for name, c := range map[string]struct {
		brings redeliver.Policy
		action redeliver.Action
		delay  time.Duration
	}{
		"more retries": {redeliver.Policy{MaxRetries: 10_000, Backoff: redeliver.Fixed(second), MaxAge: hour}, redeliver.DeadLetter, 0},
		"no MaxAge":    {redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(second)}, redeliver.DeadLetter, 0},
		"fewer":        {redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(second), MaxAge: hour}, redeliver.DeadLetter, 0},
	} {
		sub, _ := subscribe(&broker{}, t.Context())
		sub.Policy, sub.StrangersWrite = is, true
		st := redeliver.State{ID: "a", Attempts: 2, Schedule: c.brings.Schedule(), Policy: "00c0ffee00c0ffee"}
		if dec := sub.Decide(st, errOurs, time.Now()); dec.Action != c.action || dec.Delay != c.delay {
			t.Errorf("%s: %s after %s, want %s", name, dec.Action, dec.Delay, c.action)
		}
		st.Attempts = 0
		if dec := sub.Decide(st, errOurs, time.Now()); name == "fewer" && dec.Delay != second || name != "fewer" && dec.Delay != hour {
			t.Errorf("%s: the first failure waits %s", name, dec.Delay)
		}
	}
}

// function is a Backoff that lists nothing.
type function struct{}

func (function) Delay(int, float64) (time.Duration, bool) { return 3 * second, true }

func TestScheduleIsReckonedOnce(t *testing.T) {
	sub, _ := subscribe(&broker{}, t.Context())
	if got := sub.Schedule(); got != sub.Policy.Schedule() || got == "" {
		t.Errorf("schedule %q", got)
	}
	if n := testing.AllocsPerRun(10, func() { sub.Schedule() }); n > 0 {
		t.Errorf("%v allocations for each", n)
	}
}

// What is the policy's own costs a decision nothing more than before; what is another's
// costs little.
func TestADecisionByTheOwnRuleAllocatesNothingMore(t *testing.T) {
	sub, _ := subscribe(&broker{}, t.Context())
	st := redeliver.State{ID: "a", Attempts: 1}
	now := time.Now()
	least := testing.AllocsPerRun(100, func() { sub.Policy.Decide(st, errOurs, now) }) + 1 // the decision
	for name, brings := range map[string]string{"its own": sub.Schedule(), "none": ""} {
		st.Schedule = brings
		if n := testing.AllocsPerRun(100, func() { sub.Decide(st, errOurs, now) }); n > least {
			t.Errorf("%s: %v allocations, want at most %v", name, n, least)
		}
	}
}

func changes(b *broker) (all []string) {
	for _, e := range events[redeliver.SubscriptionChanged](b) {
		all = append(all, string(e.Change))
	}
	return all
}

// What another policy wrote long after this process has met the first such message is
// written beside it, and told of: once in an hour, for each policy.
func TestAnotherPolicyThatWritesNowIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		meet := func(policy string, failed time.Time) {
			sub.Met(&redeliver.State{ID: "a", Attempts: 1, Policy: policy, LastFailed: failed})
		}
		want := func(when string, n int) {
			t.Helper()
			if got := changes(b); len(got) != n || slices.ContainsFunc(got, func(c string) bool { return c != "policies differ" }) {
				t.Errorf("%s: told %q, want %d times", when, got, n)
			}
		}
		began := time.Now()
		meet("other", began.Add(-hour)) // from before the deploy
		<-time.After(30 * minute)
		meet(sub.Fingerprint(), time.Now())
		meet("", time.Now())
		meet("other", began.Add(-second))   // it waited for long
		meet("other", began.Add(20*second)) // a drain, or a clock that is ahead
		want("nobody else writes", 0)
		meet("other", time.Now())
		meet("other", time.Now())
		want("another writes", 1)
		meet("third", time.Now())
		want("and a third", 2)
		<-time.After(hour)
		meet("other", time.Now())
		want("an hour later", 3)
		last := events[redeliver.SubscriptionChanged](b)[2]
		if last.Origin != sub.Origin || last.Group != sub.Group || !errors.Is(last.Err, delayqueue.ErrPolicies) || last.Detail == "" {
			t.Errorf("told %+v", last)
		}
		for i := range 1000 {
			meet(fmt.Sprint("policy ", i), time.Now())
		}
		if n := len(changes(b)); n > 110 {
			t.Errorf("%d policies are remembered", n)
		}
	})
}

func TestThatAllAgreeIsToldOnceAndForgetsWhatWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		sub.Agrees() // nothing was told
		sub.Met(&redeliver.State{Policy: "other", LastFailed: time.Now().Add(-hour)})
		sub.Differs("other", "it runs on 10.0.0.1")
		sub.Differs("other", "it runs on 10.0.0.1")
		<-time.After(10 * minute)
		wrote := time.Now()
		<-time.After(second)
		sub.Agrees()
		sub.Agrees()
		sub.Met(&redeliver.State{Policy: "other", LastFailed: wrote}) // it waited, and comes now
		if got := changes(b); !slices.Equal(got, []string{"policies differ", "policies agree"}) {
			t.Errorf("told %q", got)
		}
		<-time.After(10 * minute)
		sub.Agrees() // again, which changes nothing
		sub.Met(&redeliver.State{Policy: "other", LastFailed: time.Now()})
		if got := changes(b); len(got) != 3 {
			t.Errorf("told %q: it writes again", got)
		}
	})
}

func TestAPlanSaysWhereTheRuleDoesNotTravel(t *testing.T) {
	if note := delayqueue.Untold(redeliver.Policy{Backoff: redeliver.RocketMQHTTP()}); note != "" {
		t.Errorf("noted %q", note)
	}
	if note := delayqueue.Untold(redeliver.Policy{Backoff: function{}}); note == "" {
		t.Error("nothing is noted")
	}
}
