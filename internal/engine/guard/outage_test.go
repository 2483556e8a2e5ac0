package guard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// threeKeys returns an outage of three keys.
func threeKeys() redeliver.Outage {
	p := redeliver.Policy{Outage: redeliver.Outage{MinKeys: 3, Share: 0.75, Window: 10 * time.Second, Probe: time.Second, MaxPause: 3 * time.Second, Probes: 2}}
	return p.WithDefaults().Outage
}

// A cause is spread when enough keys failed with it within the window, and few attempts have succeeded meanwhile.
func TestACauseIsSpreadOverKeys(t *testing.T) {
	type at struct {
		after     time.Duration
		what, key uint64 // what 0: the attempt succeeded
	}
	ms := time.Millisecond
	for name, c := range map[string]struct {
		ends []at
		want bool
	}{
		"three keys":                     {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 1, 3}}, true},
		"two keys, often":                {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 1, 1}, {ms, 1, 2}, {ms, 1, 1}}, false},
		"three causes":                   {[]at{{0, 1, 1}, {ms, 2, 2}, {ms, 3, 3}}, false},
		"two causes mixed":               {[]at{{0, 1, 1}, {ms, 2, 9}, {ms, 1, 2}, {ms, 2, 8}, {ms, 1, 3}}, true},
		"within the window":              {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {5000 * ms, 1, 3}}, true},
		"longer than the window":         {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {5001 * ms, 1, 3}}, false},
		"the first failed again":         {[]at{{0, 1, 1}, {5000 * ms, 1, 2}, {ms, 1, 1}, {5001 * ms, 1, 3}}, true},
		"the last three of four":         {[]at{{0, 1, 1}, {9000 * ms, 1, 2}, {1001 * ms, 1, 3}, {7000 * ms, 1, 4}}, true},
		"a success among four":           {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 0, 0}, {ms, 1, 3}}, true},
		"two successes among five":       {[]at{{0, 1, 1}, {ms, 1, 2}, {ms, 0, 0}, {ms, 0, 0}, {ms, 1, 3}}, false},
		"successes before do not matter": {[]at{{0, 0, 0}, {ms, 0, 0}, {ms, 0, 0}, {ms, 1, 1}, {ms, 1, 2}, {ms, 1, 3}}, true},
	} {
		s := newSpread(threeKeys())
		got, now := false, time.Duration(0)
		for i, e := range c.ends {
			if now += e.after; e.what == 0 {
				s.addSuccess()
				continue
			}
			if got = s.addFailure(e.what, e.key, now); got && i < len(c.ends)-1 {
				t.Errorf("%s: spread after %d", name, i+1)
			}
		}
		if got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Any number of failures takes bounded memory.
func TestSpreadIsBounded(t *testing.T) {
	s := newSpread(threeKeys())
	for i := range uint64(10_000) {
		s.addFailure(i%100, i, time.Duration(i))
	}
	keys := 0
	for _, c := range s.causes {
		keys += len(c.keys)
	}
	if len(s.causes) != maxCauses || keys > maxCauses*3 {
		t.Errorf("%d causes with %d keys", len(s.causes), keys)
	}
	o := newOutage(threeKeys(), false, new(Changes))
	for i := range uint64(3) {
		o.failed(&Failure{Cause: 1, Key: i, ID: i}, 0)
	}
	for i := range uint64(100) {
		o.failed(&Failure{Cause: i, Key: i, ID: i, Probe: true}, 0)
	}
	if len(o.probeErrors) != maxProbeErrors {
		t.Errorf("%d errors of probes", len(o.probeErrors))
	}
	if s = newSpread(threeKeys()); s.addFailure(1, 1, 0) || s.addFailure(1, 2, 0) || !s.addFailure(1, 3, 0) {
		t.Error("three keys are not spread")
	}
}

// Each case is a sequence of ends of attempts, each with the change that it causes.
func TestAnOutageBeginsAndEnds(t *testing.T) {
	type step struct {
		at    int // in seconds
		probe bool
		id    uint64 // 0: a success
		what  uint64
		want  redeliver.Change // empty for none
	}
	const (
		none, begins, ends, probing = redeliver.Change(""), redeliver.ChangeOutage, redeliver.ChangeOutageOver, redeliver.ChangeProbing
	)
	begun := []step{{0, false, 1, 7, none}, {0, false, 2, 7, none}, {0, false, 3, 7, begins}}
	for name, c := range map[string]struct {
		then  []step
		phase breakerState
		until int // in seconds
	}{
		"begins":                             {nil, breakerOpen, 1},
		"in flight before":                   {[]step{{0, false, 4, 7, none}, {0, false, 0, 0, none}}, breakerOpen, 1},
		"two succeed":                        {[]step{{1, true, 0, 0, probing}, {1, true, 0, 0, ends}}, breakerClosed, 0},
		"pauses grow":                        {[]step{{1, true, 1, 7, none}, {3, true, 2, 7, none}, {6, true, 3, 7, none}}, breakerOpen, 9},
		"one success is not enough":          {[]step{{1, true, 0, 0, probing}, {1, true, 1, 7, begins}}, breakerOpen, 3},
		"failures no longer count":           {[]step{{1, true, 0, 0, probing}, {1, true, 1, 7, begins}, {3, true, 0, 0, probing}, {3, true, 0, 0, ends}}, breakerClosed, 0},
		"poison does not lengthen the pause": {[]step{{1, true, 1, 8, none}, {2, true, 2, 9, none}}, breakerOpen, 3},
		"poison does not reset successes":    {[]step{{1, true, 0, 0, probing}, {1, true, 1, 8, none}, {2, true, 0, 0, ends}}, breakerClosed, 0},
		"three messages fail alike":          {[]step{{1, true, 1, 8, none}, {2, true, 2, 8, none}, {3, true, 3, 8, none}, {5, true, 4, 8, none}}, breakerOpen, 8},
		"one message fails three times":      {[]step{{1, true, 1, 8, none}, {2, true, 1, 8, none}, {3, true, 1, 8, none}, {4, true, 1, 8, none}}, breakerOpen, 5},
		"one message alone, five times":      {[]step{{1, true, 1, 7, none}, {3, true, 1, 7, none}, {6, true, 1, 7, none}, {9, true, 1, 7, none}, {12, true, 1, 7, ends}}, breakerClosed, 0},
		"two messages alternate":             {[]step{{1, true, 1, 7, none}, {3, true, 2, 7, none}, {6, true, 1, 7, none}, {9, true, 2, 7, none}, {12, true, 1, 7, none}, {15, true, 2, 7, none}}, breakerOpen, 18},
		"a new outage starts from zero":      {[]step{{1, true, 0, 0, probing}, {1, true, 0, 0, ends}, {1, false, 4, 7, none}, {1, false, 5, 7, none}}, breakerClosed, 0},
	} {
		var reported Changes
		o := newOutage(threeKeys(), false, &reported)
		for i, s := range slices.Concat(begun, c.then) {
			now := time.Duration(s.at) * time.Second
			if s.probe {
				if o.endPause(now); o.state != breakerHalfOpen {
					t.Fatalf("%s: step %d finds it in phase %d", name, i, o.state)
				}
			}
			reported = nil
			if s.id == 0 {
				o.succeeded(s.probe, now)
			} else {
				o.failed(&Failure{Cause: s.what, Key: s.id, ID: s.id, Probe: s.probe, Before: -1}, now)
			}
			got := none
			if len(reported) > 0 {
				got = reported[0].Change
			}
			if got != s.want || len(reported) > 1 {
				t.Errorf("%s: step %d reports %v, want %q", name, i, reported, s.want)
			}
		}
		if o.state != c.phase || c.phase == breakerOpen && o.until != time.Duration(c.until)*time.Second {
			t.Errorf("%s: phase %d until %s, want %d until %ds", name, o.state, o.until, c.phase, c.until)
		}
	}
}

// A message that fails again, although another has succeeded since its last failure, does not keep an outage from ending.
func TestAKnownFailureBetweenSuccessesConcernsItsMessage(t *testing.T) {
	for name, c := range map[string]struct {
		before time.Duration
		want   breakerState
	}{
		"failed before the success": {time.Second, breakerClosed},
		"failed after the success":  {3 * time.Second, breakerHalfOpen},
		"its first failure":         {-1, breakerHalfOpen},
	} {
		var reported Changes
		o := newOutage(threeKeys(), false, &reported)
		for key := range uint64(3) {
			o.failed(&Failure{Cause: 7, Key: key, ID: key, Before: -1}, 0)
		}
		o.succeeded(true, 2*time.Second)
		o.failed(&Failure{Cause: 7, Key: 1, ID: 1, Probe: true, Before: c.before}, 4*time.Second)
		o.succeeded(true, 9*time.Second)
		if o.state != c.want {
			t.Errorf("%s: phase %d, want %d", name, o.state, c.want)
		}
	}
}

// The events of an outage have its figures.
func TestAnOutageIsReportedWithItsFigures(t *testing.T) {
	policy := redeliver.Policy{Outage: threeKeys()}
	var g Guard
	g.Init(&policy)
	fails := func(at int, probe bool, id uint64) {
		g.CountFailure(&Failure{Cause: 7, Key: id, ID: id, Probe: probe, Postponable: true, Before: -1}, time.Duration(at)*time.Second)
	}
	begins := func(at int) {
		t.Helper()
		now := time.Duration(at) * time.Second
		if !g.MayProbe(now) {
			t.Fatalf("no probe may begin after %d s", at)
		}
		g.BeginProbe(now)
		g.EndProbe(false)
	}
	for id := range uint64(3) {
		fails(10, false, id+1)
	}
	begins(11)
	fails(12, true, 1)
	begins(14)
	g.Succeeded(true, 0, 15*time.Second)
	begins(15)
	fails(16, true, 2)
	begins(19)
	g.Succeeded(true, 0, 19*time.Second)
	begins(19)
	g.Succeeded(true, 0, 20*time.Second)

	var got []string
	for _, e := range g.Changes {
		got = append(got, string(e.Change)+": "+e.Detail)
	}
	if want := []string{
		"outage: messages of 3 keys failed with the same error; nothing new begins, and the first probe follows in 1s",
		"probing: a probe has succeeded after 5s; 1 more must succeed",
		"outage: a probe failed after others had succeeded; the next one follows in 3s",
		"probing: a probe has succeeded after 9s; 1 more must succeed",
		"outage over: it took 10s and 5 probes; all messages run again",
	}; !slices.Equal(got, want) {
		t.Errorf("reported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The events of a flood have its figures, and the first probe follows its pause.
func TestAFloodIsReportedWithItsFigures(t *testing.T) {
	policy := redeliver.Policy{
		Outage: redeliver.Outage{Off: true}, DeadLetterRate: redeliver.DeadLetterRate{Max: 2, Window: 5 * time.Minute, Pause: time.Minute, Probes: 2},
	}
	var g Guard
	g.Init(&policy)
	for range 3 {
		g.DeadLettered(false, 3*time.Second)
	}
	if g.MayProbe(62*time.Second) || !g.MayProbe(63*time.Second) {
		t.Error("the first probe does not follow the end of the pause")
	}
	for range 2 {
		g.Succeeded(true, 0, 63*time.Second)
	}
	var got []string
	for _, e := range g.Changes {
		got = append(got, string(e.Change)+": "+e.Detail)
	}
	if want := []string{
		"flood: more than 2 dead letters in 5m0s; nothing new begins for 1m0s",
		"flood over: 2 messages in a row have succeeded; all run again",
	}; !slices.Equal(got, want) {
		t.Errorf("reported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A message that has failed before while others succeeded does not count when it fails again.
func TestRemainingPoisonIsNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		counted bool
		since   time.Duration
		well    int
		want    bool
	}{
		"first attempts":             {false, 0, 100, true},
		"retries of poison":          {true, 5 * time.Second, 100, false},
		"retries, and none succeeds": {true, 5 * time.Second, 0, true},
		"hours old, others succeed":  {true, 5 * time.Hour, 100, false},
		"successes are few":          {true, 5 * time.Second, 1, true},
		"exactly enough of them":     {true, 5 * time.Second, 2, false},
		"nothing ended since":        {true, time.Second, 100, true},
	} {
		var reported Changes
		o := newOutage(threeKeys(), false, &reported)
		for range c.well {
			o.succeeded(false, time.Second)
		}
		for i := range 6 { // of one key, which is no outage
			o.failed(&Failure{Cause: 7, Key: 99, ID: uint64(i)}, time.Second)
		}
		for key := range uint64(3) {
			o.failed(&Failure{Cause: 7, Key: key, ID: key, FailedBefore: c.counted, SinceFirst: c.since}, 3*time.Second)
		}
		if got := len(reported) > 0; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Two bad messages that take turns as probes end an outage. Otherwise all others would wait behind them. As many as begin an outage
// cannot be told from one.
func TestFewBadMessagesThatTakeTurnsEndAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		blocking bool
		messages uint64
		ends     bool
	}{
		"one":                        {messages: 1, ends: true},
		"two":                        {messages: 2, ends: true},
		"as many as begin an outage": {messages: 3},
		"two heads of partitions":    {blocking: true, messages: 2, ends: true},
		"three heads of partitions":  {blocking: true, messages: 3},
	} {
		var reported Changes
		o := newOutage(threeKeys(), c.blocking, &reported)
		for key := range uint64(3) {
			o.failed(&Failure{Cause: 7, Key: key, ID: key, Before: -1}, 0)
		}
		for i := range maxSameProbe * c.messages {
			if o.state == breakerClosed {
				t.Fatalf("%s: over after %d probes", name, i)
			}
			o.failed(&Failure{Cause: 7, Key: i % c.messages, ID: i % c.messages, Probe: true, Before: 0}, time.Duration(i+1)*time.Second)
			if o.failedProbes[0] == maxSameProbe {
				break
			}
		}
		if got := o.state == breakerClosed; got != c.ends {
			t.Errorf("%s: over %t, want %t", name, got, c.ends)
		}
	}
}

// With OrderBlocking, bad messages at the heads of several partitions do not wait forever for a program that seems not to be there.
func TestHeadsThatTakeTurnsAreToBlame(t *testing.T) {
	for name, blocking := range map[string]bool{"OrderBlocking": true, "OrderFirstAttempts": false} {
		var g Guard
		policy := redeliver.Policy{Outage: threeKeys()}
		if blocking {
			policy.Order = redeliver.OrderBlocking
		}
		g.Init(&policy)
		blamed := false
		for i := range 40 {
			at := time.Duration(i) * time.Minute
			f := &Failure{Cause: 7, ID: uint64(i % 2), Probe: i >= minSigns, Postponable: true, Before: at - time.Minute, Unreachable: true, Began: at}
			blamed = blamed || !g.CountFailure(f, at)
		}
		if blamed != blocking {
			t.Errorf("%s: blamed %t, want %t", name, blamed, blocking)
		}
	}
}
