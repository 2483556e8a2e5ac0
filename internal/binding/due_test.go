package binding_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
)

const (
	ms     = time.Millisecond
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

var origin = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func delayed(until, wait string) *message.Message {
	msg := message.NewMessage("1", nil)
	if until != "" {
		msg.Metadata.Set(delay.DelayedUntilKey, until)
	}
	if wait != "" {
		msg.Metadata.Set(delay.DelayedForKey, wait)
	}
	return msg
}

func TestPublishDue(t *testing.T) {
	now := origin.Add(250 * ms)
	at := now.Add
	for _, c := range []struct {
		name, until, wait string
		due               time.Time // zero: delivered at once
	}{
		{"nothing", "", "", time.Time{}},
		{"for", "", "1m30s", at(90 * second)},
		{"a delay with parts of a millisecond", "", "1.0001ms", at(2 * ms)}, // rounded up, never early
		{"for nothing", "", "0s", time.Time{}},
		{"a negative delay", "", "-5s", time.Time{}},
		{"until", "2026-03-14T16:00:00Z", "", time.Date(2026, 3, 14, 16, 0, 0, 0, time.UTC)},
		{"until elsewhere", "2026-03-14T17:00:00+01:00", "", time.Date(2026, 3, 14, 16, 0, 0, 0, time.UTC)},
		{"until the past", "2026-03-14T15:09:26Z", "", time.Time{}},
		{"until long ago", "0001-01-01T00:00:00Z", "", time.Time{}},
		// Until was 15:10:26.250, cut to the second. For shows how much was cut.
		{"both, cut", "2026-03-14T15:10:26Z", "1m0s", at(minute)},
		{"both, published later", "2026-03-14T15:09:46Z", "20.3s", origin.Add(20*second + 550*ms)},
		{"both, published much later", "2026-03-14T15:09:36Z", "1m0s", origin.Add(11 * second)}, // no later than the next second
		{"both, too late", "2026-03-14T15:09:16Z", "1m0s", time.Time{}},
		{"both, whole second", "2026-03-14T15:10:26Z", "59.75s", origin.Add(minute)},
		{"both, for is shorter", "2026-03-14T15:10:26Z", "1s", origin.Add(minute)},
		{"the longest", "", redeliver.MaxWait.String(), at(redeliver.MaxWait)},
	} {
		due, ok, err := binding.PublishDue(delayed(c.until, c.wait), now)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if ok != !c.due.IsZero() || ok && !due.Equal(c.due) {
			t.Errorf("%s: due %s, %v; want %s", c.name, due, ok, c.due)
		}
	}
}

func TestPublishDueRefusesInvalidDelays(t *testing.T) {
	for _, c := range []struct {
		until, wait string
		problems    int
	}{
		{"tomorrow", "", 1},
		{"2026-03-14", "", 1},
		{"1773500966", "", 1},
		{"", "soon", 1},
		{"", "10", 1},
		{"", "1d", 1},
		{"", "9999999999h", 1},
		{"tomorrow", "soon", 2},
		{"2026-03-14T16:00:00Z", "soon", 1},
		{"tomorrow", "1s", 1},
	} {
		due, ok, err := binding.PublishDue(delayed(c.until, c.wait), origin)
		var config *redeliver.ConfigError
		if ok || !due.IsZero() || !errors.As(err, &config) || len(config.Problems) != c.problems {
			t.Errorf("until %q, for %q: %s, %v, %v; want %d problems", c.until, c.wait, due, ok, err, c.problems)
		}
	}
}

func TestPublishDueRefusesTooLongDelays(t *testing.T) {
	for _, c := range []struct{ until, wait string }{
		{"", (redeliver.MaxWait + 1).String()},
		{"", "2562047h"},
		{"2027-03-16T00:00:00Z", ""},
		{"9999-12-31T23:59:59Z", ""},
		{"9999-12-31T23:59:59Z", "2562047h"},
	} {
		_, ok, err := binding.PublishDue(delayed(c.until, c.wait), origin)
		var e *redeliver.UnschedulableError
		if ok || !errors.As(err, &e) || e.Max != redeliver.MaxWait || e.Wait <= e.Max {
			t.Errorf("until %q, for %q: %v, %v; want unschedulable", c.until, c.wait, ok, err)
		}
	}
}

// The metadata that Watermill itself writes: never early, and at most the rounding to a second late.
func TestPublishDueIsNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := message.NewMessage("1", nil)
		wait := time.Duration(rapid.Int64Range(int64(-hour), int64(300*24*hour)).Draw(t, "wait"))
		var asked time.Time
		if rapid.Bool().Draw(t, "until") {
			asked = time.Now().Add(wait)
			delay.Message(msg, delay.Until(asked))
		} else {
			asked = time.Now().Add(wait) // no later than the time that For uses
			delay.Message(msg, delay.For(wait))
		}
		now := time.Now().Add(time.Duration(rapid.Int64Range(0, int64(minute)).Draw(t, "published later")))
		due, ok, err := binding.PublishDue(msg, now)
		if err != nil {
			t.Fatal(err)
		}
		if !ok && asked.After(now) {
			t.Fatalf("asked for %s and published at %s: not delayed", asked, now)
		}
		if ok && (due.Before(asked) || due.Sub(asked) > time.Second+10*ms) {
			t.Fatalf("asked for %s and published at %s: due %s", asked, now, due)
		}
	})
}

// With any metadata of a publisher, a message is never early, and never later than the longest wait.
func FuzzPublishDue(f *testing.F) {
	f.Add("2026-03-14T15:09:26Z", "1s")
	f.Add("", "2562047h")
	f.Add("9999-12-31T23:59:59Z", "")
	f.Add("0000-01-01T00:00:00Z", "-1h")
	f.Add("2026-03-14T15:09:26.5+14:00", "soon")
	now := time.Date(2026, 3, 14, 15, 9, 26, 535897932, time.UTC)
	f.Fuzz(func(t *testing.T, until, wait string) {
		msg := message.NewMessage("1", nil)
		msg.Metadata[delay.DelayedUntilKey], msg.Metadata[delay.DelayedForKey] = until, wait
		due, ok, err := binding.PublishDue(msg, now)
		if err != nil {
			if ok {
				t.Errorf("%q, %q: both %s and %v", until, wait, due, err)
			}
			return
		}
		if at, bad := time.Parse(time.RFC3339, until); bad == nil && ok && due.Before(at) {
			t.Errorf("%q, %q: early, at %s", until, wait, due)
		}
		if ok && (!due.After(now) || due.Sub(now) > redeliver.MaxWait+time.Millisecond) {
			t.Errorf("%q, %q: due %s", until, wait, due)
		}
	})
}
