package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// watched is a subscription whose policy knows outages of three keys.
func watched(t *testing.T, b *broker, change func(*redeliver.Policy)) *delayqueue.Subscription {
	t.Helper()
	p := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Second), Outage: redeliver.Outage{MinKeys: 3, MaxPause: 4 * time.Second}}
	if change != nil {
		change(&p)
	}
	sub, _ := subscribe(b, t.Context())
	if err := p.Validate("Policy"); err != nil {
		t.Fatal(err)
	}
	sub.Policy = p.WithDefaults()
	sub.Shrink(0, 100)
	return sub
}

// of is a message with an id.
func of(sub *delayqueue.Subscription, id string, session context.Context) *delayqueue.Delivery { //nolint:revive // as in deliver
	d := &delayqueue.Delivery{Sub: sub, Record: record{}, ID: id}
	d.Begin(session)
	return d
}

// work is what a handler does with a message.
type work func(*delayqueue.Attempt) error

func (w work) Handle(a *delayqueue.Attempt) error  { return w(a) }
func (work) Describe() (redeliver.Headers, []byte) { return message.Metadata{}, nil }
func (work) Answered() bool                        { return false }
func (work) Expired(err error) error               { return err }
func (work) Settle(bool)                           {}
func changesOf(b *broker) (told []string) {
	for _, e := range events[redeliver.SubscriptionChanged](b) {
		told = append(told, string(e.Change))
	}
	return told
}

// run runs a message as an adapter does whose lanes have one each.
func run(ctx context.Context, d *delayqueue.Delivery, w work) bool {
	room := &d.Sub.Throttle
	if !room.Enter(ctx, d) {
		return false
	}
	how, ended := delayqueue.Work(new(delayqueue.Attempt), d, w)
	if !ended {
		how = delayqueue.Forwarded
	}
	room.Leave(d, how)
	return true
}

// Messages that keep their places are probes where they are, one after another: nothing
// that is behind them could be.
func TestProbesThatWaitInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub := watched(t, b, func(p *redeliver.Policy) { p.Order = redeliver.Blocking; p.MaxRetries = 4 })
		sub.Blocking = true
		var mu sync.Mutex
		var runs []string
		start, at := time.Now(), []time.Duration(nil)
		var well atomic.Bool
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				run(t.Context(), of(sub, fmt.Sprint(i), t.Context()), func(a *delayqueue.Attempt) error {
					mu.Lock()
					defer mu.Unlock()
					runs, at = append(runs, a.Delivery().State().ID), append(at, time.Since(start))
					if well.Load() {
						return nil
					}
					return errOurs
				})
			})
		}
		<-time.After(time.Hour)
		mu.Lock()
		// Three at once; then the first after 1 s, 2 s later the next, 4 s later the next, and so on.
		for i := 4; i < len(at); i++ {
			if pause := at[i] - at[i-1]; pause != min(time.Second<<min(i-3, 2), 4*time.Second) {
				t.Errorf("probe %d came %s after the one before", i, pause)
			}
		}
		seen := slices.Clone(runs[len(runs)-3:])
		slices.Sort(seen)
		if n := len(runs); n < 890 || n > 910 || !slices.Equal(seen, []string{"0", "1", "2"}) {
			t.Errorf("%d attempts in an hour, the last by %v", n, seen)
		}
		mu.Unlock()
		well.Store(true)
		all.Wait()
		if told, want := changesOf(b), []string{"outage", "probing", "outage over"}; !slices.Equal(told, want) || len(b.wrote) > 0 {
			t.Errorf("told %q, wrote %v", told, b.wrote)
		}
	})
}

// A message in place that is lost to this process leaves its place to the next.
func TestAProbeInPlaceThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub := watched(t, b, func(p *redeliver.Policy) { p.Order = redeliver.Blocking })
		sub.Blocking = true
		var well atomic.Bool
		var done atomic.Int64
		var all sync.WaitGroup
		session, end := context.WithCancel(t.Context())
		for i := range 6 {
			ctx := session
			if i < 3 {
				ctx = t.Context()
			}
			all.Go(func() {
				run(t.Context(), of(sub, fmt.Sprint(i), ctx), func(*delayqueue.Attempt) error {
					if well.Load() {
						done.Add(1)
						return nil
					}
					return errOurs
				})
			})
		}
		<-time.After(time.Minute)
		end()
		well.Store(true)
		all.Wait()
		if n := done.Load(); n != 3 {
			t.Errorf("%d succeeded, want those that are not lost", n)
		}
		if n := len(events[redeliver.Abandoned](b)); n != 3 {
			t.Errorf("%d were abandoned", n)
		}
	})
}

// Whatever becomes of probes, there is one at a time, and another when it has ended.
func TestWhateverBecomesOfProbes(t *testing.T) {
	for name, c := range map[string]struct {
		ends func(d *delayqueue.Delivery) // a probe, without a handler that succeeds
	}{
		"abandoned": {func(d *delayqueue.Delivery) { d.Sub.Throttle.Leave(d, delayqueue.Abandoned) }},
		"moved on":  {func(d *delayqueue.Delivery) { d.Sub.Throttle.Leave(d, delayqueue.Forwarded) }},
		"dead-lettered": {func(d *delayqueue.Delivery) {
			_ = d.Sub.Forward(d, d.Decide(redeliver.Permanent(errOurs), time.Now()), errOurs)
			d.Sub.Throttle.Leave(d, delayqueue.Forwarded)
		}},
		"never ends": {func(*delayqueue.Delivery) { <-time.After(4 * time.Second) }}, // MaxPause
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &broker{}
				sub := watched(t, b, nil)
				for i := range 3 {
					run(t.Context(), of(sub, fmt.Sprint(i), t.Context()), func(*delayqueue.Attempt) error { return errOurs })
				}
				began := time.Now()
				for i := range 10 {
					d := of(sub, fmt.Sprint("probe ", i), t.Context())
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					if !sub.Throttle.Enter(ctx, d) {
						t.Fatalf("no probe after %d", i)
					}
					if took := time.Since(began); i == 0 && took != time.Second {
						t.Errorf("the first probe after %s", took)
					}
					soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
					if sub.Throttle.Enter(soon, of(sub, "another", t.Context())) {
						t.Fatal("two probes at once")
					}
					stop()
					cancel()
					c.ends(d)
				}
				if told := changesOf(b); !slices.Equal(told, []string{"outage"}) {
					t.Errorf("told %q", told)
				}
				for i := range 3 {
					run(t.Context(), of(sub, fmt.Sprint("well ", i), t.Context()), func(*delayqueue.Attempt) error { return nil })
				}
				if sub.Throttle.Held() {
					t.Error("three successes do not end it")
				}
			})
		})
	}
}

// What the handler, or a limit in time, says of a message stands in an outage, too.
func TestWhatAnOutageDoesNotSpare(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		age    time.Duration
		waited *redeliver.State
		want   redeliver.Action
		reason redeliver.Reason
	}{
		"the last retry":      {err: errOurs, waited: &redeliver.State{Attempts: 2}, want: redeliver.Postponed},
		"a time-out":          {err: &redeliver.TimeoutError{After: time.Second}, waited: &redeliver.State{Attempts: 2}, want: redeliver.Postponed},
		"a panic":             {err: &redeliver.PanicError{Value: "boom"}, waited: &redeliver.State{Attempts: 2}, want: redeliver.Postponed},
		"permanent":           {err: redeliver.Permanent(errOurs), want: redeliver.DeadLetter, reason: redeliver.ReasonPermanent},
		"rejected":            {err: redeliver.Reject("no"), want: redeliver.DeadLetter, reason: redeliver.ReasonRejected},
		"undecodable":         {err: &redeliver.UndecodableError{Err: errOurs}, want: redeliver.DeadLetter, reason: redeliver.ReasonUndecodable},
		"too old":             {err: errOurs, age: time.Hour, want: redeliver.DeadLetter, reason: redeliver.ReasonExpired},
		"postponed for a day": {err: errOurs, waited: &redeliver.State{PostponedSince: time.Now().Add(-25 * time.Hour)}, want: redeliver.DeadLetter, reason: redeliver.ReasonExpired},
		"unschedulable":       {err: redeliver.RetryAfter(errOurs, redeliver.MaxWait+1), want: redeliver.DeadLetter, reason: redeliver.ReasonUnschedulable},
		"it says when":        {err: redeliver.RetryAfter(errOurs, time.Hour), want: redeliver.Postponed},
		"it was postponed so": {err: redeliver.Postpone(errOurs), want: redeliver.Postponed},
		"by whoever looks on": {err: errOurs, waited: &redeliver.State{Attempts: 2}, want: redeliver.Postponed},
	} {
		b := &broker{}
		sub := watched(t, b, func(p *redeliver.Policy) { p.MaxAge = time.Minute * 59; p.MaxAge = 2 * time.Hour })
		for i := range 3 {
			of(sub, fmt.Sprint(i), t.Context()).Decide(errOurs, time.Now())
		}
		d := of(sub, "a", t.Context())
		if d.Waited = c.waited; c.waited != nil {
			c.waited.ID, c.waited.Error, c.waited.ErrorType = "a", "before", "string"
		}
		now := time.Now()
		d.Source.Timestamp = now.Add(-2*time.Hour + time.Minute)
		if d.Source.Timestamp = now; c.age > 0 {
			d.Source.Timestamp = now.Add(-2 * time.Hour)
		}
		for who, dec := range map[string]*redeliver.Decision{"who acts": d.Decide(c.err, now), "who asks": sub.Decide(d.State(), c.err, now)} {
			if dec.Action != c.want || dec.State.Reason != c.reason {
				t.Errorf("%s, for %s: %s, %s (%s)", name, who, dec.Action, dec.State.Reason, dec.State.Error)
			}
			if c.want == redeliver.Postponed {
				before := 0
				if c.waited != nil {
					before = c.waited.Attempts
				}
				after, wait := errors.As(c.err, new(*redeliver.RetryAfterError)), time.Second
				if after {
					wait = time.Hour
				}
				if dec.State.Attempts != before || dec.Delay != wait || dec.State.Error != c.err.Error() || dec.State.Policy != sub.Fingerprint() {
					t.Errorf("%s, for %s: %+v", name, who, dec)
				}
			}
		}
	}
}

// What failed under an older policy is put aside by its rule, and keeps that.
func TestAnOutageKeepsTheRule(t *testing.T) {
	sub := watched(t, &broker{}, nil)
	for i := range 3 {
		of(sub, fmt.Sprint(i), t.Context()).Decide(errOurs, time.Now())
	}
	old := redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(time.Minute)}.WithDefaults()
	d := of(sub, "a", t.Context())
	d.Waited = &redeliver.State{ID: "a", Attempts: 1, FirstFailed: time.Now(), Schedule: old.Schedule()}
	dec := d.Decide(errOurs, time.Now())
	if dec.Action != redeliver.Postponed || dec.Delay != time.Minute || dec.State.Schedule != old.Schedule() {
		t.Errorf("%s for %s under %q, want a minute under %q", dec.Action, dec.Delay, dec.State.Schedule, old.Schedule())
	}
}

// Messages that fail for the first time are an outage however much succeeded just before,
// and so are those that an outage put aside; what is left over of poison is none.
func TestAnOutageAmongSuccesses(t *testing.T) {
	for name, c := range map[string]struct {
		before *redeliver.State
		want   bool
	}{
		"first attempts":     {nil, true},
		"put aside before":   {&redeliver.State{Attempts: 1, PostponedSince: time.Now()}, true},
		"put aside at first": {&redeliver.State{PostponedSince: time.Now()}, true},
		"left over":          {&redeliver.State{Attempts: 1}, false},
	} {
		sub := watched(t, &broker{}, nil)
		for i := range 100 {
			run(t.Context(), of(sub, fmt.Sprint("well ", i), t.Context()), func(*delayqueue.Attempt) error { return nil })
		}
		for i := range 3 {
			d := of(sub, fmt.Sprint(i), t.Context())
			if c.before != nil {
				st := *c.before
				st.ID, st.FirstFailed, st.Error, st.ErrorType = d.ID, time.Now().Add(-time.Minute), "before", "string"
				d.Waited = &st
			}
			d.Decide(errOurs, time.Now())
		}
		if got := sub.Throttle.Held(); got != c.want {
			t.Errorf("%s: an outage: %t", name, got)
		}
	}
}

// However many handlers run, fail and succeed at once, and sessions end: what is counted
// comes to nothing, and all that was told makes sense.
func TestGuardUnderLoad(t *testing.T) {
	b := &broker{}
	sub := watched(t, b, func(p *redeliver.Policy) {
		p.Outage.Probe, p.Outage.MaxPause, p.Timeout = 10*time.Millisecond, 20*time.Millisecond, redeliver.NoTimeout
		p.DeadLetterRate = redeliver.DeadLetterRate{Most: 1000}
	})
	var away atomic.Int64 // attempts that still fail
	var all sync.WaitGroup
	var done atomic.Int64
	for w := range 16 {
		all.Go(func() {
			for i := range 60 {
				session, end := context.WithCancel(t.Context())
				if w == 0 && i%20 == 10 {
					away.Store(40)
				}
				if run(t.Context(), of(sub, fmt.Sprint(w, "/", i), session), func(*delayqueue.Attempt) error {
					if rand.N(20) == 0 {
						end()
					}
					if away.Add(-1) >= 0 {
						return errOurs
					}
					return nil
				}) {
					done.Add(1)
				}
				end()
			}
		})
	}
	all.Wait()
	for i := range 10 { // whatever phase it is in
		run(t.Context(), of(sub, fmt.Sprint("last ", i), t.Context()), func(*delayqueue.Attempt) error { return nil })
	}
	if sub.Throttle.Held() {
		t.Error("it is held when all succeed")
	}
	last := "outage over"
	for _, e := range changesOf(b) {
		ok := map[string][]string{"outage": {"outage over", "probing"}, "probing": {"outage"}, "outage over": {"probing", "outage"}}[e]
		if ok != nil && !slices.Contains(ok, last) {
			t.Errorf("%q was told after %q", e, last)
		}
		if ok != nil {
			last = e
		}
	}
	if last != "outage over" || done.Load() != 16*60 {
		t.Errorf("told %q at last, %d messages ran", last, done.Load())
	}
}

// What is not asked for costs nothing, and what is costs no allocation of a message that
// succeeds.
func TestGuardsDoNotAllocateForASuccess(t *testing.T) {
	sub := watched(t, &broker{}, func(p *redeliver.Policy) {
		p.DeadLetterRate = redeliver.DeadLetterRate{Most: 1000}
	})
	d := of(sub, "a", t.Context())
	if n := testing.AllocsPerRun(1000, func() {
		sub.Throttle.Enter(t.Context(), d)
		sub.Throttle.Leave(d, delayqueue.Acked)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkGuards is what a message that succeeds pays, for room and for its end.
func BenchmarkGuards(b *testing.B) {
	for name, p := range map[string]redeliver.Policy{
		"none": {}, "outage": {Outage: redeliver.DefaultOutage()},
		"all": {Outage: redeliver.DefaultOutage(), DeadLetterRate: redeliver.DeadLetterRate{Most: 100}},
	} {
		b.Run(name, func(b *testing.B) {
			sub := &delayqueue.Subscription{Policy: p.WithDefaults()}
			sub.Shrink(0, 100)
			f := delayqueue.NewFlight[*traveller]()
			f.Bound(&sub.Throttle)
			e := &traveller{}
			e.d = of(sub, "a", b.Context())
			b.ReportAllocs()
			for b.Loop() {
				f.Room()
				f.Begin(e)
				f.Land(e, delayqueue.Acked)
			}
		})
	}
}

// traveller is a message in flight.
type traveller struct {
	delayqueue.Seat
	d *delayqueue.Delivery
}

func (p *traveller) Delivery() *delayqueue.Delivery { return p.d }
func (*traveller) Handed() *message.Message         { return nil }
