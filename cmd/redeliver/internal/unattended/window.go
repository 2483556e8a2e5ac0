// Package unattended replays a DLQ without a person, for a job that runs every hour or so.
//
// It keeps no state of its own. Each message in the DLQ counts its replays, so no run replays a hopeless message forever. Each cause is a task of its own with a canary, so that a cause that is not fixed does not keep the others
// waiting.
package unattended

import (
	"fmt"
	"strings"
	"time"
)

// Window is a time of the day. The zero Window is the whole day.
type Window struct {
	from, to time.Duration // since midnight
	set      bool
}

// ParseWindow parses a text such as 08:00-18:00, or 22:00-06:00 for a window over midnight.
func ParseWindow(text string) (w Window, err error) {
	from, to, ok := strings.Cut(text, "-")
	begin, err1 := time.Parse("15:04", from)
	end, err2 := time.Parse("15:04", to)
	if !ok || err1 != nil || err2 != nil || begin.Equal(end) {
		return w, fmt.Errorf("%q: must be a beginning and a later or earlier end, as in 08:00-18:00", text)
	}
	midnight := begin.Truncate(24 * time.Hour)
	return Window{begin.Sub(midnight), end.Sub(midnight), true}, nil
}

// String returns the text of the window.
func (w Window) String() string {
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60) }
	return clock(w.from) + "-" + clock(w.to)
}

// End returns when the window that contains now ends, in the time zone of now. It is zero for a window without an end. ok is false
// outside of the window.
func (w Window) End(now time.Time) (end time.Time, ok bool) {
	if !w.set {
		return time.Time{}, true
	}
	at := func(days int, d time.Duration) time.Time { // on that day's clock, also if it has 23 or 25 hours
		return time.Date(now.Year(), now.Month(), now.Day()+days, int(d.Hours()), int(d.Minutes())%60, 0, 0, now.Location())
	}
	for _, days := range [...]int{-1, 0} { // a window that began yesterday may not have ended
		begin, end := at(days, w.from), at(days, w.to)
		if w.to < w.from {
			end = at(days+1, w.to)
		}
		if !now.Before(begin) && now.Before(end) {
			return end, true
		}
	}
	return time.Time{}, false
}
