package delayqueue_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

func TestLevelNamesAreCanonical(t *testing.T) {
	for _, c := range []struct {
		level time.Duration
		name  string
	}{
		{time.Millisecond, "1ms"},
		{100 * time.Millisecond, "100ms"},
		{time.Second, "1s"},
		{1500 * time.Millisecond, "1.5s"},
		{10 * time.Second, "10s"},
		{time.Minute, "1m"},
		{90 * time.Second, "1m30s"},
		{10 * time.Minute, "10m"},
		{time.Hour, "1h"},
		{90 * time.Minute, "1h30m"},
		{time.Hour + 5*time.Second, "1h0m5s"},
		{20*time.Hour + 10*time.Minute, "20h10m"},
		{100 * time.Hour, "100h"},
		{redeliver.MaxWait, "8784h"},
	} {
		if got := delayqueue.LevelName(c.level); got != c.name {
			t.Errorf("LevelName(%d) = %q, want %q", c.level, got, c.name)
		}
		if got, ok := delayqueue.ParseLevel(c.name); got != c.level || !ok {
			t.Errorf("ParseLevel(%q) = %s, %v; want %s", c.name, got, ok, c.level)
		}
	}
}

// Two names for one level would be two delay topics for it, and a suffix that is not a level belongs to an unrelated
// topic.
func TestOnlyCanonicalNamesAreLevels(t *testing.T) {
	for _, name := range []string{
		"", "90s", "60s", "60m", "1m0s", "1h0m0s", "1h0m", "1000ms", "1.50s", "01s", "+1s", "-1s", "0s", "0", "1", "s",
		" 1s", "1s ", "1S", "1d", "1m30", "1s.dlq", "dlq", "control", "9999999h", "1s1m", "0h1m",
	} {
		if d, ok := delayqueue.ParseLevel(name); ok {
			t.Errorf("ParseLevel(%q) = %s, but it is not a level", name, d)
		}
	}
}

func TestLevelNamesAreParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(1, int64(redeliver.MaxWait/unit)).Draw(t, "n"))
		name := delayqueue.LevelName(d)
		if got, ok := delayqueue.ParseLevel(name); got != d || !ok {
			t.Fatalf("ParseLevel(LevelName(%d) = %q) = %d, %v", d, name, got, ok)
		}
		for _, r := range name {
			if (r < '0' || r > '9') && (r < 'a' || r > 'z') && r != '.' {
				t.Fatalf("%q contains %q, which a topic name must not contain", name, r)
			}
		}
	})
}

func TestOnlyTheCanonicalNameIsParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[0-9]{0,2}[hms.]{0,2}[0-9]{0,3}(ms|s|m|h)`).Draw(t, "name")
		if d, ok := delayqueue.ParseLevel(name); ok && (d <= 0 || delayqueue.LevelName(d) != name) {
			t.Fatalf("ParseLevel(%q) = %s, whose name is %q", name, d, delayqueue.LevelName(d))
		}
	})
}

// The fingerprint includes the ladder, because a level of an older ladder must not make a due time implausible.
func TestFingerprintDependsOnTheLadder(t *testing.T) {
	p := redeliver.Policy{Backoff: redeliver.Fixed(time.Second)}
	q := p
	q.Levels = []time.Duration{time.Second, time.Minute}
	if a, b := delayqueue.Fingerprint(p), delayqueue.Fingerprint(q); a == b || a != delayqueue.Fingerprint(p) {
		t.Errorf("%s and %s", a, b)
	}
}
