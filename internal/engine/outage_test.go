package engine

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
func TestSpread(t *testing.T) {
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
	o := newOutage(threeKeys())
	for i := range uint64(3) {
		o.failed(&failure{cause: 1, key: i, id: i}, 0)
	}
	for i := range uint64(100) {
		o.failed(&failure{cause: i, key: i, id: i, probe: true}, 0)
	}
	if len(o.probeErrors) != maxProbeErrors {
		t.Errorf("%d errors of probes", len(o.probeErrors))
	}
	if s = newSpread(threeKeys()); s.addFailure(1, 1, 0) || s.addFailure(1, 2, 0) || !s.addFailure(1, 3, 0) {
		t.Error("three keys are not spread")
	}
}

// Each case is a sequence of ends of attempts, each with the transition that it causes.
func TestOutage(t *testing.T) {
	type step struct {
		at    int // in seconds
		probe bool
		id    uint64 // 0: a success
		what  uint64
		want  transition
	}
	begun := []step{{0, false, 1, 7, unchanged}, {0, false, 2, 7, unchanged}, {0, false, 3, 7, tripped}}
	for name, c := range map[string]struct {
		then  []step
		phase breakerState
		until int // in seconds
	}{
		"begins":                             {nil, breakerOpen, 1},
		"in flight before":                   {[]step{{0, false, 4, 7, stillOpen}, {0, false, 0, 0, stillOpen}}, breakerOpen, 1},
		"two succeed":                        {[]step{{1, true, 0, 0, recovering}, {1, true, 0, 0, recovered}}, breakerClosed, 0},
		"pauses grow":                        {[]step{{1, true, 1, 7, stillOpen}, {3, true, 2, 7, stillOpen}, {6, true, 3, 7, stillOpen}}, breakerOpen, 9},
		"one success is not enough":          {[]step{{1, true, 0, 0, recovering}, {1, true, 1, 7, relapsed}}, breakerOpen, 3},
		"failures no longer count":           {[]step{{1, true, 0, 0, recovering}, {1, true, 1, 7, relapsed}, {3, true, 0, 0, recovering}, {3, true, 0, 0, recovered}}, breakerClosed, 0},
		"poison does not lengthen the pause": {[]step{{1, true, 1, 8, stillOpen}, {2, true, 2, 9, stillOpen}}, breakerOpen, 3},
		"poison does not reset successes":    {[]step{{1, true, 0, 0, recovering}, {1, true, 1, 8, stillOpen}, {2, true, 0, 0, recovered}}, breakerClosed, 0},
		"three messages fail alike":          {[]step{{1, true, 1, 8, stillOpen}, {2, true, 2, 8, stillOpen}, {3, true, 3, 8, stillOpen}, {5, true, 4, 8, stillOpen}}, breakerOpen, 8},
		"one message fails three times":      {[]step{{1, true, 1, 8, stillOpen}, {2, true, 1, 8, stillOpen}, {3, true, 1, 8, stillOpen}, {4, true, 1, 8, stillOpen}}, breakerOpen, 5},
		"one message alone, five times":      {[]step{{1, true, 1, 7, stillOpen}, {3, true, 1, 7, stillOpen}, {6, true, 1, 7, stillOpen}, {9, true, 1, 7, stillOpen}, {12, true, 1, 7, unfounded}}, breakerClosed, 0},
		"two messages alternate":             {[]step{{1, true, 1, 7, stillOpen}, {3, true, 2, 7, stillOpen}, {6, true, 1, 7, stillOpen}, {9, true, 2, 7, stillOpen}, {12, true, 1, 7, stillOpen}, {15, true, 2, 7, stillOpen}}, breakerOpen, 18},
		"a new outage starts from zero":      {[]step{{1, true, 0, 0, recovering}, {1, true, 0, 0, recovered}, {1, false, 4, 7, unchanged}, {1, false, 5, 7, unchanged}}, breakerClosed, 0},
	} {
		o := newOutage(threeKeys())
		for i, s := range slices.Concat(begun, c.then) {
			now := time.Duration(s.at) * time.Second
			if s.probe {
				if o.endPause(now); o.state != breakerHalfOpen {
					t.Fatalf("%s: step %d finds it in phase %d", name, i, o.state)
				}
			}
			var got transition
			if s.id == 0 {
				got = o.succeeded(s.probe, now)
			} else {
				got = o.failed(&failure{cause: s.what, key: s.id, id: s.id, probe: s.probe}, now)
			}
			if got != s.want {
				t.Errorf("%s: step %d is %d, want %d", name, i, got, s.want)
			}
		}
		if o.state != c.phase || c.phase == breakerOpen && o.until != time.Duration(c.until)*time.Second {
			t.Errorf("%s: phase %d until %s, want %d until %ds", name, o.state, o.until, c.phase, c.until)
		}
	}
}

// The events of an outage have its figures.
func TestAnOutageIsReportedWithItsFigures(t *testing.T) {
	policy := redeliver.Policy{Outage: threeKeys()}
	g := newGuard(&policy)
	fails := func(at int, probe bool, id uint64) {
		g.judge(&failure{cause: 7, key: id, id: id, probe: probe, dependency: true, sparable: true}, time.Duration(at)*time.Second)
	}
	begins := func(at int) {
		t.Helper()
		if !g.beginProbe(time.Duration(at) * time.Second) {
			t.Fatalf("no probe may begin after %d s", at)
		}
		g.probesRunning--
	}
	for id := range uint64(3) {
		fails(10, false, id+1)
	}
	begins(11)
	fails(12, true, 1)
	begins(14)
	g.succeeded(true, 15*time.Second)
	begins(15)
	fails(16, true, 2)
	begins(19)
	g.succeeded(true, 19*time.Second)
	begins(19)
	g.succeeded(true, 20*time.Second)

	var got []string
	for _, e := range g.events {
		got = append(got, string(e.Change)+": "+e.Detail)
	}
	if want := []string{
		"outage: messages of 3 keys failed alike; nothing new begins, and the first probe follows in 1s",
		"probing: a probe has succeeded after 5s; 1 more are to",
		"outage: a probe failed after others had succeeded; the next one follows in 3s",
		"probing: a probe has succeeded after 9s; 1 more are to",
		"outage over: it took 10s and 5 probes; all messages run again",
	}; !slices.Equal(got, want) {
		t.Errorf("reported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The events of a flood have its figures, and the first probe follows its pause.
func TestAFloodIsReportedWithItsFigures(t *testing.T) {
	policy := redeliver.Policy{
		DeadLetterRate: redeliver.DeadLetterRate{Max: 2, Window: 5 * time.Minute, Pause: time.Minute, Probes: 2},
	}
	g := newGuard(&policy)
	for range 3 {
		g.deadLettered(false, 3*time.Second)
	}
	if g.beginProbe(62*time.Second) || !g.beginProbe(63*time.Second) {
		t.Error("the first probe does not follow the end of the pause")
	}
	for range 2 {
		g.succeeded(true, 63*time.Second)
	}
	var got []string
	for _, e := range g.events {
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
		o := newOutage(threeKeys())
		for range c.well {
			o.succeeded(false, time.Second)
		}
		for i := range 6 { // of one key, which is no outage
			o.failed(&failure{cause: 7, key: 99, id: uint64(i)}, time.Second)
		}
		got := false
		for key := range uint64(3) {
			got = o.failed(&failure{cause: 7, key: key, id: key, failedBefore: c.counted, sinceFirst: c.since}, 3*time.Second) == tripped || got
		}
		if got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
