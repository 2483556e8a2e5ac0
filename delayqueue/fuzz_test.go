package delayqueue_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The name of a level is parsed as exactly that level, or refused.
func FuzzParseLevel(f *testing.F) {
	for _, name := range []string{"1s", "1m30s", "90s", "0s", "-1s", "1h0m0s", "8784h", "500ms", "2562047h47m16.854775807s", "1µs", "1us", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		d, ok := delayqueue.ParseLevel(name)
		if ok && (d <= 0 || delayqueue.LevelName(d) != name) {
			t.Errorf("%q is read as %s, which is called %q", name, d, delayqueue.LevelName(d))
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
		due, ok, err := delayqueue.PublishDue(msg, now)
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
