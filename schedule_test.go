package redeliver_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
)

// invalidList is a Backoff that lists waits that no policy may have.
type invalidList struct{ redeliver.Backoff }

func (invalidList) Delays(n int) ([]time.Duration, time.Duration) { return make([]time.Duration, n), 0 }

// short is a backoff that ends after n delays.
type short struct{ n int }

func (s short) Delay(n int, _ float64) (time.Duration, bool) { return time.Second, n < s.n }
func (s short) Delays(n int) ([]time.Duration, time.Duration) {
	delays := make([]time.Duration, min(n, s.n))
	for i := range delays {
		delays[i] = time.Second
	}
	return delays, 0
}

// Other versions read it: change nothing here.
func TestScheduleOnTheWire(t *testing.T) {
	var uneven []time.Duration
	for i := range 60 {
		uneven = append(uneven, time.Hour+time.Duration(i)*time.Millisecond)
	}
	for name, c := range map[string]struct {
		p    redeliver.Policy
		want string
	}{
		"the default":            {redeliver.Policy{}, "1;3;1s,2s,4s,8s;j1s"},
		"RocketMQ":               {redeliver.Policy{Backoff: redeliver.RocketMQ()}, "1;16;10s,30s,1m,2m,3m,4m,5m,6m,7m,8m,9m,10m,20m,30m,1h,2h*2"},
		"RocketMQ over HTTP":     {redeliver.Policy{Backoff: redeliver.RocketMQHTTP()}, "1;288;5m*289"},
		"all fields":             {redeliver.Policy{MaxRetries: 5, Immediate: 2, MaxAge: 36 * time.Hour, Backoff: redeliver.ExponentialBackoff{Base: 1500 * time.Millisecond, Max: 90 * time.Minute}}, "1;5;1.5s,3s,6s,12s;i2;j1.5s;a36h"},
		"no retries":             {redeliver.Policy{MaxRetries: redeliver.NoRetries, Backoff: redeliver.Fixed(time.Minute)}, "1;0;1m"},
		"immediate ones alone":   {redeliver.Policy{MaxRetries: 2, Immediate: 2, Backoff: redeliver.Fixed(time.Minute)}, "1;2;1m;i2"},
		"one that ends":          {redeliver.Policy{MaxRetries: 9, Backoff: short{2}}, "1;9;1s*2"},
		"the most retries":       {redeliver.Policy{MaxRetries: 10_000, Backoff: redeliver.Fixed(time.Second)}, "1;10000;1s*10001"},
		"more":                   {redeliver.Policy{MaxRetries: 10_001, Backoff: redeliver.Fixed(time.Second)}, ""},
		"a function":             {redeliver.Policy{Backoff: tenSeconds{}}, ""},
		"one that lists no wait": {redeliver.Policy{Backoff: invalidList{}}, ""},
		"too long":               {redeliver.Policy{MaxRetries: 59, Backoff: redeliver.Steps(uneven...)}, ""},
	} {
		got := c.p.Schedule()
		if got != c.want {
			t.Errorf("%s: schedule %q, want %q", name, got, c.want)
		}
		if _, ok := (redeliver.Policy{}).WithSchedule(got); ok != (c.want != "") {
			t.Errorf("%s: %q is read: %t", name, got, ok)
		}
	}
}

// A message with a schedule gets the decision of the policy that wrote it, to the millisecond.
func TestAScheduleDecidesLikeThePolicyThatWroteIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delay := rapid.Map(rapid.Int64Range(1, int64(24*time.Hour/time.Millisecond)), func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond })
		was := redeliver.Policy{MaxRetries: rapid.IntRange(-1, 12).Draw(t, "retries")}
		if n := max(0, was.WithDefaults().MaxRetries); n > 0 {
			was.Immediate = rapid.IntRange(0, min(n, 3)).Draw(t, "immediate")
		}
		if rapid.Bool().Draw(t, "ages") {
			was.MaxAge = delay.Draw(t, "age")
		}
		if rapid.Bool().Draw(t, "steps") {
			was.Backoff = redeliver.Steps(rapid.SliceOfN(delay, 1, 5).Draw(t, "delays")...)
		} else {
			base := delay.Draw(t, "base")
			was.Backoff = redeliver.ExponentialBackoff{Base: base, Max: base * time.Duration(rapid.IntRange(1, 100).Draw(t, "times"))}
		}
		is := redeliver.Policy{MaxRetries: 7, Immediate: 1, Backoff: redeliver.Fixed(time.Second), MaxAge: time.Minute, Timeout: time.Second}
		under, ok := is.WithSchedule(was.Schedule())
		if !ok || under.Timeout != is.Timeout {
			t.Fatalf("under %q: %t, %+v", was.Schedule(), ok, under)
		}
		if under.Schedule() != was.Schedule() {
			t.Fatalf("the schedule %q is %q when it is written again", was.Schedule(), under.Schedule())
		}
		st := redeliver.State{
			ID: rapid.String().Draw(t, "id"), Attempts: rapid.IntRange(0, 14).Draw(t, "attempts"),
			FirstFailed: now.Add(-delay.Draw(t, "ago")), Source: redeliver.Source{Known: true},
		}
		for what, err := range map[string]error{"failed": errBoom, "asked": redeliver.RetryAfter(errBoom, time.Minute), "rejected": redeliver.Permanent(errBoom)} {
			if got, want := under.Decide(st, err, now), was.Decide(st, err, now); !reflect.DeepEqual(got, want) {
				t.Fatalf("under %q, %s:\n got %+v\nwant %+v", was.Schedule(), what, got, want)
			}
		}
		if st.Attempts <= max(0, was.WithDefaults().MaxRetries) { // with more attempts it could not have waited
			if got, want := under.Decide(st, redeliver.Postpone(errBoom), now), was.Decide(st, redeliver.Postpone(errBoom), now); !reflect.DeepEqual(got, want) {
				t.Fatalf("under %q, postponed:\n got %+v\nwant %+v", was.Schedule(), got, want)
			}
		}
	})
}

func TestRetriesEndWithAShortSchedule(t *testing.T) {
	under, _ := redeliver.Policy{}.WithSchedule(redeliver.Policy{MaxRetries: 9, Backoff: short{2}}.Schedule())
	for attempts, want := range map[int]redeliver.Action{0: redeliver.RetryLater, 1: redeliver.RetryLater, 2: redeliver.DeadLetter} {
		if d := under.Decide(redeliver.State{Attempts: attempts}, errBoom, now); d.Action != want {
			t.Errorf("after %d attempts: %s, want %s", attempts, d.Action, want)
		}
	}
}

// When Classify gives an error more retries than the schedule lists, the last wait is repeated.
func TestBeyondAScheduleTheLastWaitIsRepeated(t *testing.T) {
	p := redeliver.Policy{Classify: func(error) redeliver.Class { return redeliver.Class{MaxRetries: 100} }}
	under, _ := p.WithSchedule("1;2;1s,5s,7s")
	if d := under.Decide(redeliver.State{Attempts: 50}, errBoom, now); d.Action != redeliver.RetryLater || d.Delay != 7*time.Second {
		t.Errorf("%s after %s", d.Action, d.Delay)
	}
	under, _ = p.WithSchedule("1;2;1s,5s,7s;j1s")
	if delay, ok := under.Backoff.Delay(50, 0.75); !ok || delay != 7*time.Second+750*time.Millisecond {
		t.Errorf("with three quarters of the jitter %s, %t", delay, ok)
	}
}

// A schedule just within the bounds is accepted and written again unchanged.
func TestAScheduleMayGoToItsBounds(t *testing.T) {
	const mark = "09af09af09af09af"
	for name, text := range map[string]string{
		"the shortest wait": "1;3;1ms", "the longest": "1;3;8784h", "with its jitter": "1;3;8783h59m59s;j1s", "the shortest age": "1;3;1s;a1ms",
		"less than a second": "1;3;0.5s", "all immediate": "1;3;1s;i3", "none": "1;0;1s", "the longest text": "1;100;" + strings.Repeat("1s,2s,", 41) + "10ms",
		"as many waits as it needs": "1;3;1s*4", "with immediate ones": "1;3;1s*3;i1", "one run after another": "1;3;1s*2,2s*2",
	} {
		p, ok := redeliver.Policy{}.WithSchedule(text)
		if !ok {
			t.Errorf("%s: %q is refused as a schedule", name, text)
			continue
		}
		if delay, _ := p.Backoff.Delay(0, 0); delay < time.Millisecond || delay > redeliver.MaxWait {
			t.Errorf("%s: under %q the first wait is %s", name, text, delay)
		}
		st := redeliver.State{Group: "g", Attempts: 2, Policy: mark, Schedule: text}
		if got, findings := redeliver.ParseHeaders("g", st.AppendHeaders(nil)); got.Schedule != text || got.Policy != mark || len(findings) > 0 {
			t.Errorf("%s: %q of policy %s comes back as %q of %s, findings %v", name, text, mark, got.Schedule, got.Policy, findings)
		}
	}
	for _, text := range []string{"1;3;999us", "1;3;8784h1ms", "1;3;8783h59m59s;j1001ms", "1;3;1s;a999us", "1;3;1s*5", "1;3;1s*4;i1", "1;100;" + strings.Repeat("1s,2s,", 41) + "100ms"} {
		if _, ok := (redeliver.Policy{}).WithSchedule(text); ok {
			t.Errorf("%q is just beyond the bounds, and accepted as a schedule", text)
		}
	}
}

// wrongSchedules are invalid texts after a fingerprint.
var wrongSchedules = map[string]string{
	"nothing": "", "words": "soon and often", "another version": "2;3;1s,2s,4s", "no waits": "1;3", "an empty wait": "1;3;",
	"a sign": "1;-3;1s", "another sign": "1;+3;1s", "an absurd count": "1;99999999;1s", "overflow": "1;99999999999999999999;1s",
	"more waits than retries": "1;3;1s*5", "no run": "1;3;1s*", "a run of one": "1;3;1s*1", "runs that overflow": "1;3;1s*9223372036854775807,1s*9223372036854775807",
	"no wait": "1;3;0s", "a nanosecond": "1;3;1ns", "the past": "1;3;-1h", "a millennium": "1;3;8760000h", "a number": "1;3;5",
	"with the jitter too long": "1;3;8784h;j1s", "an unknown option": "1;3;1s;x1", "an empty option": "1;3;1s;", "twice": "1;3;1s;j1s;j2s",
	"more immediate than retries": "1;3;1s;i4", "an age of zero": "1;3;1s;a0s", "blanks": "1; 3; 1s", "a line": "1;3;1s\n",
	"too long": "1;100;" + strings.Repeat("1s,2s,", 50) + "1s", "no UTF-8": "1;3;1s;j\xff",
}

func TestAnInvalidScheduleIsAFinding(t *testing.T) {
	const mark = "00c0ffee00c0ffee"
	for name, text := range wrongSchedules {
		headers := []redeliver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderPolicy, Value: mark + " " + text}}
		st, findings := redeliver.ParseHeaders("g", headers)
		if want := (redeliver.State{Group: "g", Attempts: 2, Policy: mark}); !reflect.DeepEqual(st, want) || len(findings) != 1 {
			t.Errorf("%s: %q makes %+v, findings %v", name, text, st, findings)
		}
		if p, ok := (redeliver.Policy{MaxRetries: 7}).WithSchedule(text); ok || p.MaxRetries != 7 || p.Backoff != nil {
			t.Errorf("%s: %q is accepted as a schedule: %+v", name, text, p)
		}
	}
}

// A schedule follows only a fingerprint. Other names of policies stay as they are.
func TestAScheduleFollowsAFingerprintOnly(t *testing.T) {
	for _, policy := range []string{"", "mine", "mine 1;3;1s", "00C0FFEE00C0FFEE 1;3;1s", "00c0ffee00c0ffee-1;3;1s"} {
		st := redeliver.State{Policy: policy, Schedule: "1;3;1s"}
		got, findings := redeliver.ParseHeaders("", st.AppendHeaders(nil))
		if got.Policy != policy || got.Schedule != "" || len(findings) > 0 {
			t.Errorf("policy %q comes back as %q with the schedule %q, findings %v", policy, got.Policy, got.Schedule, findings)
		}
	}
}

// For every header the number of attempts, each wait and the time of a decision are bounded.
func FuzzSchedule(f *testing.F) {
	f.Add("1;3;1s,2s,4s,8s;j1s")
	f.Add("1;288;5m*289;i1;a24h")
	for _, text := range wrongSchedules {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := redeliver.Policy{}.WithSchedule(text)
		if !ok {
			return
		}
		if err := p.Validate("Policy"); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		retries := max(0, p.MaxRetries)
		if d := p.Decide(redeliver.State{Attempts: retries}, errBoom, now); d.Action != redeliver.DeadLetter {
			t.Errorf("%q: %s after %d attempts", text, d.Action, retries+1)
		}
		for n := range min(retries, 300) {
			if d, ok := p.Backoff.Delay(n, 0.999999); ok && (d < time.Millisecond || d > redeliver.MaxWait) {
				t.Errorf("%q: delayed retry %d waits %s", text, n, d)
			}
		}
		if again := p.Schedule(); again != "" {
			if _, ok := p.WithSchedule(again); !ok {
				t.Errorf("%q is written as %q, which cannot be read", text, again)
			}
		}
	})
}

func ExamplePolicy_Schedule() {
	fmt.Println(redeliver.Policy{Backoff: redeliver.RocketMQHTTP(), MaxAge: 36 * time.Hour}.Schedule())
	// Output: 1;288;5m*289;a36h
}

// Parsing is on the path of every message that comes back.
func TestAScheduleIsReadWithoutAnAllocation(t *testing.T) {
	headers := []redeliver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderPolicy, Value: "00c0ffee00c0ffee"}}
	read := func() { _, _ = redeliver.ParseHeaders("g", headers) }
	without := testing.AllocsPerRun(100, read)
	headers[1].Value += " " + redeliver.Policy{Backoff: redeliver.RocketMQ()}.Schedule()
	if with := testing.AllocsPerRun(100, read); with > without {
		t.Errorf("%v allocations, without a schedule %v", with, without)
	}
}
