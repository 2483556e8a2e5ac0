package unattended_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/unattended"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*60*60)
	at := func(text string) time.Time {
		got, err := time.ParseInLocation("2006-01-02 15:04:05", text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct {
		window, now, end string // end is empty outside
	}{
		{"08:00-18:00", "2026-11-28 08:00:00", "2026-11-28 18:00:00"},
		{"08:00-18:00", "2026-11-28 17:59:59", "2026-11-28 18:00:00"},
		{"08:00-18:00", "2026-11-28 18:00:00", ""},
		{"08:00-18:00", "2026-11-28 07:59:59", ""},
		{"22:00-06:30", "2026-11-28 23:00:00", "2026-11-29 06:30:00"},
		{"22:00-06:30", "2026-12-01 00:00:00", "2026-12-01 06:30:00"},
		{"22:00-06:30", "2026-11-28 06:30:00", ""},
		{"22:00-06:30", "2026-11-28 21:59:00", ""},
	} {
		w, err := unattended.ParseWindow(c.window)
		if err != nil || w.String() != c.window {
			t.Fatalf("%s is %s: %v", c.window, w, err)
		}
		end, ok := w.End(at(c.now))
		if ok != (c.end != "") || ok && !end.Equal(at(c.end)) {
			t.Errorf("%s at %s ends at %s, %v; want %q", c.window, c.now, end, ok, c.end)
		}
	}
	if end, ok := (unattended.Window{}).End(time.Now()); !ok || !end.IsZero() {
		t.Errorf("the whole day ends at %s, %v", end, ok)
	}
	for _, text := range []string{"", "8", "08:00", "08:00-", "08:00-08:00", "25:00-26:00", "08:00-18:00-20:00", "08:00 18:00"} {
		if w, err := unattended.ParseWindow(text); err == nil {
			t.Errorf("%q is %s", text, w)
		}
	}
}
