package observe

import (
	"time"

	"github.com/redeliver/redeliver"
)

// CountingSink is a Sink that counts first attempts that succeed, and their commits, without events. Most messages
// succeed at first. With events, a message in observe/otel's BenchmarkObserved/prometheus takes 3 times as long and 2
// more allocations.
type CountingSink interface {
	redeliver.Sink
	// Counter returns the Counter of a subscription, and a sink that also gets the events of these messages, nil for none. If the
	// Counter is nil, the CountingSink itself gets these events. of is the Sink on which Counter is called. Counter must return
	// nil if of is not its receiver: a Sink that embeds a CountingSink inherits its Counter, which would bypass the outer Event.
	// Counter is called once, before the subscription's first message.
	Counter(of redeliver.Sink, origin, group string) (c Counter, rest redeliver.Sink)
}

// Counter counts messages of one subscription, instead of two events for each. Its methods are called as Event is, and
// a panic is ignored. All other events are reported, also those of attempts that fail or are not the first.
type Counter interface {
	// Attempted replaces the event [redeliver.Attempted] for a message whose first attempt succeeded, and that was neither delayed nor
	// replayed before. took is how long its handler ran.
	Attempted(took time.Duration)
	// Committed replaces the event [redeliver.Committed] for such a message.
	Committed()
}

// Counter implements [CountingSink] with the sinks that do. The others get events.
func (all sinkList) Counter(_ redeliver.Sink, origin, group string) (Counter, redeliver.Sink) {
	var counters counterList
	var rest sinkList
	for _, s := range all {
		counting, ok := s.(CountingSink)
		if !ok {
			rest = append(rest, s)
			continue
		}
		c, r := counting.Counter(s, origin, group)
		if c != nil {
			counters = append(counters, c)
		} else {
			r = s
		}
		if r != nil {
			rest = append(rest, r)
		}
	}
	return single[Counter](counters, counters), single[redeliver.Sink](rest, rest)
}

type counterList []Counter

// Attempted implements [Counter].
func (all counterList) Attempted(took time.Duration) {
	for _, c := range all {
		c.Attempted(took)
	}
}

// Committed implements [Counter].
func (all counterList) Committed() {
	for _, c := range all {
		c.Committed()
	}
}

// single returns the only element of all, the zero value if there is none, or otherwise several, which combines them.
func single[T any](all []T, several T) T {
	switch len(all) {
	case 0:
		var none T
		return none
	case 1:
		return all[0]
	default:
		return several
	}
}
