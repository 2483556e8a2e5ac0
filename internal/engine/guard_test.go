package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// guarded returns a policy with an Outage of three keys.
func guarded() redeliver.Policy {
	return redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Hour), Outage: redeliver.Outage{MinKeys: 3, MaxPause: 4 * time.Second}}
}

// startOutage runs a journal whose first three messages fail, which begins an outage. Then h handles messages.
func startOutage(t *testing.T, p redeliver.Policy, h func(context.Context, *record) error) *journal {
	t.Helper()
	j := newJournal(p)
	var n atomic.Int64
	j.start(t, handle(func(ctx context.Context, r *record) error {
		if n.Add(1) <= 3 {
			return errOurs
		}
		return h(ctx, r)
	}))
	j.publish("1", "2", "3")
	synctest.Wait()
	if !j.sub.OnlyProbes() {
		t.Fatal("no outage has begun")
	}
	return j
}

// In an outage attempts do not count. A message that its handler
// rejects, or that has expired, still goes to the DLQ. Subscription.Decide gives the same answer.
func TestAnOutagePostponesFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		before redeliver.State
		since  time.Duration // it is postponed
		age    time.Duration
		want   redeliver.Action
		reason redeliver.Reason
		delay  time.Duration
	}{
		"the last retry":      {err: errOurs, before: redeliver.State{Attempts: 2}, want: redeliver.ActionPostpone, delay: time.Hour},
		"a time-out":          {err: &redeliver.TimeoutError{After: time.Second}, before: redeliver.State{Attempts: 2}, want: redeliver.ActionPostpone, delay: time.Hour},
		"a panic":             {err: &redeliver.PanicError{Value: "boom"}, before: redeliver.State{Attempts: 2}, want: redeliver.ActionPostpone, delay: time.Hour},
		"it says when":        {err: redeliver.RetryAfter(errOurs, time.Minute), before: redeliver.State{Attempts: 1}, want: redeliver.ActionPostpone, delay: time.Minute},
		"postponed by itself": {err: redeliver.Postpone(errOurs), before: redeliver.State{Attempts: 1}, want: redeliver.ActionPostpone, delay: time.Hour},
		"permanent":           {err: redeliver.Permanent(errOurs), before: redeliver.State{Attempts: 1}, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonPermanent},
		"rejected":            {err: redeliver.Reject("no"), before: redeliver.State{Attempts: 1}, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonRejected},
		"undecodable":         {err: &redeliver.UndecodableError{Err: errOurs}, before: redeliver.State{Attempts: 1}, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonUndecodable},
		"too old":             {err: errOurs, before: redeliver.State{Attempts: 1}, age: 3 * time.Hour, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonExpired},
		"postponed for a day": {err: errOurs, before: redeliver.State{Attempts: 1}, since: 25 * time.Hour, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonExpired},
		"unschedulable":       {err: redeliver.RetryAfter(errOurs, redeliver.MaxWait+1), before: redeliver.State{Attempts: 1}, want: redeliver.ActionDeadLetter, reason: redeliver.ReasonUnschedulable},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := guarded()
			p.MaxAge = 2 * time.Hour
			j := startOutage(t, p, func(context.Context, *record) error { return c.err })
			st := c.before
			st.ID, st.Error, st.ErrorType, st.FirstFailed = "a", "before", "string", time.Now()
			if st.Source.Timestamp = time.Now(); c.age > 0 {
				st.Source.Timestamp = time.Now().Add(-c.age)
			}
			if c.since > 0 {
				st.PostponedSince = time.Now().Add(-c.since)
			}
			asked := j.sub.Decide(st, c.err, time.Now())
			j.in <- &record{id: "a", state: &st}
			<-time.After(2 * time.Second) // it is the first probe
			synctest.Wait()
			got := j.written()[len(j.written())-1]
			if c.want != asked.Action || c.reason != asked.State.Reason || got.Reason != c.reason || got.ID != "a" {
				t.Errorf("%s: written as %+v, and asked before it was %s as %+v", name, got, asked.Action, asked.State)
			}
			if c.want != redeliver.ActionPostpone {
				return
			}
			e := events[redeliver.MessagePostponed](j)
			if got.Attempts != c.before.Attempts || got.Error != c.err.Error() || got.Policy != j.sub.Fingerprint() ||
				e[len(e)-1].Delay != c.delay || asked.Delay != c.delay {
				t.Errorf("%s: written as %+v, reported as %+v", name, got, e)
			}
		})
	}
}

// A probe that gives no signal about the dependency is followed by the next one. It neither ends the outage nor makes the pause
// longer. Two probes never run at once.
func TestAProbeWithoutASignalIsFollowedByTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		lost bool
	}{
		"lost":          {errOurs, true},
		"dead-lettered": {redeliver.Permanent(errOurs), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var j *journal
			var running, both, probes atomic.Int64
			var silent atomic.Bool
			silent.Store(true)
			j = startOutage(t, guarded(), func(ctx context.Context, _ *record) error {
				if running.Add(1) > 1 && silent.Load() {
					both.Add(1)
				}
				defer running.Add(-1)
				probes.Add(1)
				if !silent.Load() {
					return nil
				}
				<-time.After(100 * time.Millisecond)
				if c.lost {
					j.abandonAll()
					<-ctx.Done()
				}
				return c.err
			})
			for i := range 10 {
				<-time.After(3 * time.Second)
				j.publish(fmt.Sprint("probe ", i), fmt.Sprint("another ", i))
				synctest.Wait()
			}
			<-time.After(10 * time.Second)
			if n := probes.Load(); n < 10 || both.Load() > 0 || !slices.Equal(j.changes(), []string{"outage"}) {
				t.Errorf("%s: %d probes, %d at the same time as others, changes %q", name, n, both.Load(), j.changes())
			}
			silent.Store(false)
			j.publish("well 1", "well 2", "well 3")
			<-time.After(5 * time.Second)
			synctest.Wait()
			if j.sub.OnlyProbes() {
				t.Errorf("%s: three successes do not end the outage", name)
			}
		})
	}
}

// The next probe begins MaxPause after one that does not end.
func TestAProbeThatDoesNotEndIsFollowedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		var mu sync.Mutex
		var at []time.Duration
		begun := time.Now()
		j := startOutage(t, guarded(), func(context.Context, *record) error {
			mu.Lock()
			at = append(at, time.Since(begun))
			mu.Unlock()
			<-over
			return nil
		})
		j.publish("a", "b", "c")
		<-time.After(20 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{time.Second, 5 * time.Second, 9 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("probes at %v, want %v", at, want)
		}
		close(over)
		synctest.Wait()
	})
}

// With OrderBlocking the waiting messages themselves are the probes, one after another.
func TestMessagesThatWaitInPlaceAreTheProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guarded()
		p.Order, p.MaxRetries, p.Backoff = redeliver.OrderBlocking, 4, redeliver.Fixed(time.Second)
		j := newJournal(p)
		j.sub.KeepsPlace = true
		var at []time.Duration
		seen := make(map[string]int)
		var well atomic.Bool
		done := 0
		j.start(t, handle(func(_ context.Context, r *record) error {
			if well.Load() {
				done++
				return nil
			}
			at = append(at, time.Since(j.begun))
			seen[r.id]++
			return errOurs
		}))
		for _, id := range []string{"a", "b", "c"} {
			j.in <- &record{id: id, key: id}
			synctest.Wait()
		}
		<-time.After(time.Hour)
		synctest.Wait()
		// Three attempts run at once. The first probe follows after 1 s, the next 2 s later, the next 4 s later, and so
		// on.
		for i := 4; i < len(at); i++ {
			if pause := at[i] - at[i-1]; pause != min(time.Second<<min(i-3, 2), 4*time.Second) {
				t.Fatalf("probe %d began %s after the one before", i, pause)
			}
		}
		if n := len(at); n < 890 || n > 910 || len(seen) != 3 || seen["a"] < 250 || seen["b"] < 250 || seen["c"] < 250 {
			t.Errorf("%d attempts in an hour, by %v", n, seen)
		}
		well.Store(true)
		<-time.After(time.Minute)
		synctest.Wait()
		if want := []string{"outage", "probing", "outage over"}; done != 3 || !slices.Equal(j.changes(), want) || len(j.written()) > 0 {
			t.Errorf("%d messages ended, changes %q, written %v", done, j.changes(), j.written())
		}
	})
}

// Messages that fail for the first time, or that an outage postponed, are an outage although many have succeeded just before.
// Messages that have failed before are poison.
func TestFirstFailuresAreAnOutageDespiteSuccesses(t *testing.T) {
	for name, c := range map[string]struct {
		before *redeliver.State
		want   bool
	}{
		"first attempts":     {nil, true},
		"postponed":          {&redeliver.State{Attempts: 1, PostponedSince: time.Now()}, true},
		"postponed at first": {&redeliver.State{PostponedSince: time.Now()}, true},
		"left over":          {&redeliver.State{Attempts: 1}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(guarded())
			j.start(t, handle(func(_ context.Context, r *record) error {
				if r.id == "fails" {
					return errOurs
				}
				return nil
			}))
			for range 100 {
				j.publish("well")
			}
			synctest.Wait()
			for i := range 3 {
				r := &record{id: "fails", key: fmt.Sprint(i)}
				if c.before != nil {
					st := *c.before
					st.ID, st.FirstFailed, st.Error, st.ErrorType = "fails", time.Now().Add(-time.Minute), "before", "string"
					if !st.PostponedSince.IsZero() {
						st.PostponedSince = time.Now().Add(-time.Minute)
					}
					r.state = &st
				}
				j.in <- r
				synctest.Wait()
			}
			if got := j.sub.OnlyProbes(); got != c.want {
				t.Errorf("%s: an outage: %t", name, got)
			}
		})
	}
}

// Failures count by key: many of one key are no outage. A message without a key counts by its id.
func TestAnOutageCountsKeys(t *testing.T) {
	for name, c := range map[string]struct {
		records []*record
		err     error
		want    bool
	}{
		"one key":    {[]*record{{id: "a", key: "k"}, {id: "b", key: "k"}, {id: "c", key: "k"}, {id: "d", key: "k"}}, errOurs, false},
		"three keys": {[]*record{{id: "a", key: "k"}, {id: "a", key: "l"}, {id: "a", key: "m"}}, errOurs, true},
		"their own":  {[]*record{{id: "a", key: "k"}, {id: "b", key: "l"}, {id: "c", key: "m"}}, redeliver.Permanent(errOurs), false},
		"postponed":  {[]*record{{id: "a", key: "k"}, {id: "b", key: "l"}, {id: "c", key: "m"}}, redeliver.Postpone(errOurs), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(guarded())
			j.start(t, failWith(c.err))
			for _, r := range c.records {
				j.in <- r
			}
			synctest.Wait()
			if got := j.sub.OnlyProbes(); got != c.want {
				t.Errorf("%s: an outage: %t, want %t", name, got, c.want)
			}
		})
	}
}

// A suspect that fails resets the successes of other probes.
func TestASuspectThatFailsIsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(guarded())
		j.alone = func(id string) bool { return id == "suspect" }
		j.start(t, handle(func(_ context.Context, r *record) error {
			if r.id == "well" {
				return nil
			}
			return errOurs
		}))
		j.publish("1", "2", "3")
		<-time.After(time.Second)
		for _, id := range []string{"well", "suspect"} {
			j.publish(id)
			synctest.Wait()
		}
		if want := []string{"outage", "probing", "outage"}; !slices.Equal(j.changes(), want) {
			t.Errorf("changes %q, want %q", j.changes(), want)
		}
	})
}

// In a flood one message begins after each pause, as long as messages go to the DLQ.
func TestAFloodLetsOneMessageThroughAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{DeadLetterRate: redeliver.DeadLetterRate{Max: 2, Window: 5 * time.Minute, Pause: time.Minute, Probes: 2}})
		j.sub.MaxInFlight = 1
		var at []time.Duration
		j.start(t, handle(func(context.Context, *record) error {
			at = append(at, time.Since(j.begun))
			return redeliver.Permanent(errOurs)
		}))
		j.publish("1", "2", "3", "4", "5", "6")
		<-time.After(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, 0, 0, time.Minute, 2 * time.Minute, 3 * time.Minute}; !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v", at, want)
		}
	})
}

// A suspect, which runs alone, counts as a probe of an outage.
func TestASuspectIsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guarded()
		p.Outage.Probes = 1
		j := newJournal(p)
		j.alone = func(id string) bool { return id == "suspect" }
		j.start(t, handle(func(_ context.Context, r *record) error {
			if r.id == "suspect" {
				return nil
			}
			return errors.New("no bank")
		}))
		j.publish("1", "2", "3")
		synctest.Wait()
		if !j.sub.OnlyProbes() {
			t.Fatal("no outage has begun")
		}
		<-time.After(time.Second)
		j.publish("suspect")
		synctest.Wait()
		if j.sub.OnlyProbes() {
			t.Errorf("the success of the suspect does not end the outage: %q", j.changes())
		}
	})
}
