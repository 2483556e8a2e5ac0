package console

import (
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

const (
	hours = 24
	// recent is the stretch from which the present rate is taken.
	recent = 5 * time.Minute
)

// Arrivals says when the messages in a DLQ were written. Messages that left it are not counted.
type Arrivals struct {
	Now    time.Time // the end
	Hours  [hours]int64
	Recent int64 // in the last five minutes
	Before int64 // earlier than all that
}

func newArrivals(now time.Time) Arrivals { return Arrivals{Now: now} }

// see counts a message. Clocks differ: a time in the future counts as now.
func (a *Arrivals) see(m *deadletter.Message) {
	age := max(0, a.Now.Sub(m.Time))
	if age < recent {
		a.Recent++
	}
	if h := int(age / time.Hour); h < hours {
		a.Hours[hours-1-h]++
	} else {
		a.Before++
	}
}

// Day is how many came within 24 hours.
func (a Arrivals) Day() (n int64) {
	for _, h := range a.Hours {
		n += h
	}
	return n
}

// LastHour is how many came within an hour.
func (a Arrivals) LastHour() int64 { return a.Hours[hours-1] }

// Bar is an hour of the chart.
type Bar struct {
	From, To time.Time
	Count    int64
	X, Y, H  int // in the chart's units: 10 wide each, 100 high
}

// Bars are the hours, the earliest first.
func (a Arrivals) Bars() []Bar {
	most := a.Most()
	bars := make([]Bar, hours)
	for i, n := range a.Hours {
		to := a.Now.Add(-time.Duration(hours-1-i) * time.Hour)
		h := 0
		if n > 0 {
			h = max(2, int(n*100/most)) // one of many can be seen, too
		}
		bars[i] = Bar{From: to.Add(-time.Hour), To: to, Count: n, X: i * 10, Y: 100 - h, H: h}
	}
	return bars
}

// Most is the highest of the hours, at least 1.
func (a Arrivals) Most() (most int64) {
	most = 1
	for _, n := range a.Hours {
		most = max(most, n)
	}
	return most
}
