package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

// The errors of attempts, for a Policy.Classify that treats them differently.
var (
	ErrOutage = errors.New("simulated: the dependency is down")
	ErrRandom = errors.New("simulated: bad luck")
	ErrPoison = errors.New("simulated: a message that never succeeds")
)

// Defaults and bounds of a [Scenario].
const (
	DefaultDuration = time.Hour
	DefaultRate     = 10
	DefaultBars     = 48

	maxMessages = 100_000_000
	maxBars     = 10_000
)

// Scenario describes what happens to a subscription. The zero Scenario is an hour of ten messages a
// second that all succeed, under the zero Policy.
type Scenario struct {
	// Policy is the policy, with its defaults. Its functions are called as a subscriber calls them, except Invalid,
	// because the messages have no content.
	Policy redeliver.Policy
	// Duration is how long messages arrive. Default 1 h.
	Duration time.Duration
	// Rate is the number of messages that arrive in a second, evenly. Default 10.
	Rate float64
	// PoisonShare is the share of messages that never succeed, from 0 to 1.
	PoisonShare float64
	// ErrorShare is the share of attempts that fail by chance, from 0 to 1.
	ErrorShare float64
	// Outages are times in which attempts fail.
	Outages []Outage
	// HandlerTime is how long an attempt takes. Default 0.
	HandlerTime time.Duration
	// Concurrency bounds the attempts that run at once, retries included. Default
	// 0, no bound.
	Concurrency int
	// Bars is the number of intervals in Result.Series. Default 48.
	Bars int
	// Seed determines which messages and attempts fail by chance.
	Seed uint64
}

// Outage is an interval. Attempts that begin in it may fail.
type Outage struct {
	From, To time.Duration // since the first message
	// Share is how many of the attempts fail, from 0 to 1. Default 1, all.
	Share float64
}

func (s Scenario) withDefaults() Scenario {
	s.Policy = s.Policy.WithDefaults()
	s.Duration = cmp.Or(s.Duration, DefaultDuration)
	s.Rate = cmp.Or(s.Rate, DefaultRate)
	s.Bars = cmp.Or(s.Bars, DefaultBars)
	return s
}

// messages returns the number of messages that arrive.
func (s *Scenario) messages() int { return int(math.Round(s.Duration.Seconds() * s.Rate)) }

// Validate returns one redeliver.ConfigError with all problems, or nil.
func (s Scenario) Validate() error {
	s = s.withDefaults()
	var ps check.Problems
	ps.CheckPolicy("Policy", s.Policy)
	ps.CheckDuration("Duration", s.Duration, time.Millisecond, redeliver.MaxWait)
	ps.CheckDuration("HandlerTime", s.HandlerTime, 0, redeliver.MaxWait)
	ps.CheckCount("Concurrency", s.Concurrency, 0, math.MaxInt32)
	ps.CheckCount("Bars", s.Bars, 1, maxBars)
	switch n := s.Duration.Seconds() * s.Rate; {
	case !(s.Rate > 0) || math.IsInf(s.Rate, 0):
		ps.Add("Rate", s.Rate, "must be a positive number")
	case math.Round(n) < 1:
		ps.Add("Rate", s.Rate, fmt.Sprintf("must be large enough for one message in %s", s.Duration))
	case n > maxMessages:
		ps.Add("Rate", s.Rate, fmt.Sprintf("must make at most %d messages in %s", maxMessages, s.Duration))
	}
	share(&ps, "PoisonShare", s.PoisonShare)
	share(&ps, "ErrorShare", s.ErrorShare)
	for i, o := range s.Outages {
		field := fmt.Sprintf("Outages[%d]", i)
		share(&ps, field+".Share", o.Share)
		if o.From < 0 {
			ps.Add(field+".From", o.From, "must not be negative")
		}
		if o.To <= o.From {
			ps.Add(field+".To", o.To, "must be later than From")
		}
	}
	return ps.Err()
}

func share(ps *check.Problems, field string, v float64) {
	if !(v >= 0 && v <= 1) {
		ps.Add(field, v, "must be from 0 to 1")
	}
}

// Fails returns the error of an attempt, or nil if it succeeds. id counts the messages from 0, in the
// order in which they arrive, attempt counts from 1, and at is the time since the first message
// arrived. To compare a simulation with a real run, let the handler return these errors; the
// jitter is the same if the id of message 7 is "7".
func (s *Scenario) Fails(id uint32, attempt int, at time.Duration) error {
	if s.PoisonShare > 0 && s.draw(id, 0) < s.PoisonShare {
		return ErrPoison
	}
	for i, o := range s.Outages {
		if at >= o.From && at < o.To && (o.Share == 0 || o.Share == 1 || s.draw(id, uint64(attempt)<<8+uint64(i)+2) < o.Share) {
			return ErrOutage
		}
	}
	if s.ErrorShare > 0 && s.draw(id, uint64(attempt)<<8+1) < s.ErrorShare {
		return ErrRandom
	}
	return nil
}

// draw returns a number in [0, 1) that is the same in every run.
func (s *Scenario) draw(id uint32, what uint64) float64 {
	x := s.Seed ^ uint64(id)*0x9e3779b97f4a7c15 ^ what*0xd1342543de82ef95
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
