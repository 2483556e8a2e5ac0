package console

import (
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

const (
	hours = 24
	// recentPeriod is the period from which the current rate is computed.
	recentPeriod = 5 * time.Minute
)

// arrivals counts the messages of a DLQ by the time at which they were written. It does not count messages that have
// left the DLQ.
type arrivals struct {
	Now    time.Time // end of the last hour
	Hours  [hours]int64
	Recent int64 // in the last five minutes
	Before int64 // before Hours
}

func newArrivals(now time.Time) arrivals { return arrivals{Now: now} }

// add counts a message. Because clocks differ, it counts a time in the future as now.
func (a *arrivals) add(m *deadletter.Message) {
	age := max(0, a.Now.Sub(m.Time))
	if age < recentPeriod {
		a.Recent++
	}
	if h := int(age / time.Hour); h < hours {
		a.Hours[hours-1-h]++
	} else {
		a.Before++
	}
}

// Day returns the number of messages that arrived within 24 hours.
func (a arrivals) Day() (n int64) {
	for _, h := range a.Hours {
		n += h
	}
	return n
}

// LastHour returns the number of messages that arrived within the last hour.
func (a arrivals) LastHour() int64 { return a.Hours[hours-1] }

// hourBar is an hour of the chart.
type hourBar struct {
	From, To time.Time
	Count    int64
	X, Y, H  int // in units of the chart, in which a bar is 10 wide and at most 100 high
}

// Bars returns the hours, the earliest first.
func (a arrivals) Bars() []hourBar {
	most := a.Most()
	bars := make([]hourBar, hours)
	for i, n := range a.Hours {
		to := a.Now.Add(-time.Duration(hours-1-i) * time.Hour)
		h := 0
		if n > 0 {
			h = max(2, int(n*100/most)) // even one message must be visible
		}
		bars[i] = hourBar{From: to.Add(-time.Hour), To: to, Count: n, X: i * 10, Y: 100 - h, H: h}
	}
	return bars
}

// Most returns the highest count of an hour, at least 1.
func (a arrivals) Most() (most int64) {
	most = 1
	for _, n := range a.Hours {
		most = max(most, n)
	}
	return most
}
