package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// The rule under which a message first failed decides about it, and stays with it. A message without a rule gets the
// policy's.
func TestAMessageFinishesByTheRuleThatItBrings(t *testing.T) {
	was := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(10*time.Second, time.Minute)}
	is := redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(time.Hour)}.WithDefaults()
	overriding := is
	overriding.Supersede = true
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
		"a first failure":                        {is, "", 0, redeliver.RetryLater, time.Hour, is.Schedule()},
		"its own":                                {is, is.Schedule(), 3, redeliver.RetryLater, time.Hour, is.Schedule()},
		"an older one":                           {is, was.Schedule(), 1, redeliver.RetryLater, time.Minute, was.Schedule()},
		"an older one, at its end":               {is, was.Schedule(), 2, redeliver.DeadLetter, 0, was.Schedule()},
		"an older one, superseded":               {overriding, was.Schedule(), 2, redeliver.RetryLater, time.Hour, is.Schedule()},
		"an empty one":                           {is, "", 2, redeliver.RetryLater, time.Hour, is.Schedule()},
		"an invalid one":                         {is, "nonsense", 2, redeliver.RetryLater, time.Hour, is.Schedule()},
		"a policy whose delays cannot be listed": {unlisted, "", 0, redeliver.RetryLater, 3 * time.Second, ""},
		"behind an older one":                    {unlisted, was.Schedule(), 1, redeliver.RetryLater, time.Minute, was.Schedule()},
	} {
		sub := newBroker(c.policy).sub
		sub.Policy = c.policy
		sub.Start()
		dec := sub.Decide(redeliver.State{ID: "a", Attempts: c.attempts, Schedule: c.brings, Policy: "0123456789abcdef"}, errOurs, time.Now())
		if dec.Action != c.action || dec.Delay != c.delay || dec.State.Schedule != c.carries || dec.State.Policy != sub.Fingerprint() {
			t.Errorf("%s: %s after %s, by %q under %s; want %s after %s by %q", name, dec.Action, dec.Delay, dec.State.Schedule, dec.State.Policy, c.action, c.delay, c.carries)
		}
	}
}

// A forged rule gives no more retries than the policy.
func TestAForgedRuleGivesNoMoreThanThePolicy(t *testing.T) {
	is := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Hour), MaxAge: 10 * time.Hour}.WithDefaults()
	for name, c := range map[string]struct {
		brings redeliver.Policy
		action redeliver.Action
		delay  time.Duration
	}{
		"more retries": {redeliver.Policy{MaxRetries: 10_000, Backoff: redeliver.Fixed(time.Second), MaxAge: time.Hour}, redeliver.DeadLetter, 0},
		"no MaxAge":    {redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Second)}, redeliver.DeadLetter, 0},
		"fewer":        {redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), MaxAge: time.Hour}, redeliver.DeadLetter, 0},
	} {
		sub := newBroker(redeliver.Policy{}).sub
		sub.Policy, sub.UntrustedProducers = is, true
		sub.Start()
		st := redeliver.State{ID: "a", Attempts: 2, Schedule: c.brings.Schedule(), Policy: "00c0ffee00c0ffee"}
		if dec := sub.Decide(st, errOurs, time.Now()); dec.Action != c.action || dec.Delay != c.delay {
			t.Errorf("%s: %s after %s, want %s", name, dec.Action, dec.Delay, c.action)
		}
		st.Attempts = 0
		if dec := sub.Decide(st, errOurs, time.Now()); name == "fewer" && dec.Delay != time.Second || name != "fewer" && dec.Delay != time.Hour {
			t.Errorf("%s: the first failure waits %s", name, dec.Delay)
		}
	}
}

// function is a Backoff that is not a DelayLister.
type function struct{}

func (function) Delay(int, float64) (time.Duration, bool) { return 3 * time.Second, true }

// A decision about a message that comes with the policy's own rule, or none, allocates no more than a decision of the
// policy.
func TestADecisionByTheOwnRuleAllocatesNoMore(t *testing.T) {
	sub := newBroker(redeliver.Policy{}).sub
	sub.Start()
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

func TestAgreementIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{})
		sub := j.sub
		sub.Start()
		sub.ReportOnePolicy() // nothing was reported
		sub.CheckPolicyOf(&redeliver.State{Policy: "other", LastFailed: time.Now().Add(-time.Hour)})
		sub.ReportOtherPolicy("other", "it runs on 10.0.0.1")
		sub.ReportOtherPolicy("other", "it runs on 10.0.0.1")
		<-time.After(10 * time.Minute)
		wrote := time.Now()
		<-time.After(time.Second)
		sub.ReportOnePolicy()
		sub.ReportOnePolicy()
		sub.CheckPolicyOf(&redeliver.State{Policy: "other", LastFailed: wrote}) // it waited, and comes now
		if got := j.changes(); !slices.Equal(got, []string{"policies differ", "policies agree"}) {
			t.Errorf("reported %q", got)
		}
		<-time.After(10 * time.Minute)
		sub.ReportOnePolicy() // again, which changes nothing
		sub.CheckPolicyOf(&redeliver.State{Policy: "other", LastFailed: time.Now()})
		if got := j.changes(); len(got) != 3 {
			t.Errorf("reported %q: it writes again", got)
		}
	})
}

// A plan has a note if a rule does not fit into a header.
func TestAPlanNotesARuleThatDoesNotFitIntoAHeader(t *testing.T) {
	if notes := engine.Notes(redeliver.Policy{Backoff: redeliver.RocketMQHTTP()}); notes != nil {
		t.Errorf("noted %q", notes)
	}
	if notes := engine.Notes(redeliver.Policy{Backoff: function{}}); len(notes) != 1 {
		t.Errorf("noted %q, want that the rule does not travel", notes)
	}
}

// A plan has a note that waits are shortened, and the error of the message says so.
func TestBlockingReportsAWaitThatItCuts(t *testing.T) {
	blocking := redeliver.Policy{Order: redeliver.Blocking}
	if notes := engine.Notes(blocking); len(notes) != 1 || !strings.Contains(notes[0], "limited to 10ms to 30s") {
		t.Errorf("noted %q", notes)
	}
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(blocking)
		j.sub.KeepsPlace = true
		waits := []time.Duration{time.Hour, 30 * time.Second, time.Second}
		j.start(t, handle(func(ctx context.Context, _ *record) error {
			if st, _ := redeliver.FromContext(ctx); st.Attempts < len(waits) {
				return redeliver.RetryAfter(errOurs, waits[st.Attempts])
			}
			return nil
		}))
		j.publish("a")
		<-time.After(time.Hour)
		synctest.Wait()
		all := events[redeliver.RetryScheduled](j)
		if len(all) != 3 {
			t.Fatalf("%d retries", len(all))
		}
		if text := all[0].State.Error; all[0].Delay != 30*time.Second || !strings.Contains(text, "1h0m0s is cut to 30s") || !strings.Contains(text, errOurs.Error()) {
			t.Errorf("a retry in %s: %q", all[0].Delay, text)
		}
		for _, e := range all[1:] {
			if e.State.Error != errOurs.Error() {
				t.Errorf("a retry in %s: %q", e.Delay, e.State.Error)
			}
		}
	})
}
