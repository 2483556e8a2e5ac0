package redeliver

import "time"

// CountingSink is a Sink that counts first attempts that succeed, and their commits, without events. Nearly all messages have only these.
// With events a message in observe/otel's BenchmarkObserved/prometheus takes 3 times as long, with 2 more allocations.
type CountingSink interface {
	Sink
	// Counter returns the Counter of a subscription, and the sink that still gets events of these messages, if it wants them; nil
	// for none. With a nil Counter the sink itself gets events. of is the Sink on which Counter is called. A Sink that
	// embeds another one inherits its Counter, which would bypass the outer Event: so Counter returns nil if of is not
	// its receiver. It is called when the first message comes, perhaps more than once, and from many goroutines.
	Counter(of Sink, origin, group string) (t Counter, rest Sink)
}

// Counter counts messages of one subscription, in place of two events for each. Its methods are called like Event, and
// a panic is ignored. All other events are reported, also those of attempts that fail or are not the first.
type Counter interface {
	// Attempted replaces [Attempted] for a message that came for the first time (its State.Attempts and Replays are 0, it did
	// not wait before) and succeeded. took is how long its handler ran.
	Attempted(took time.Duration)
	// Committed replaces [Committed] for such a message.
	Committed()
}

// Counter implements [CountingSink] with the sinks that do. The others get events.
func (all sinkList) Counter(_ Sink, origin, group string) (Counter, Sink) {
	var tallies tallyList
	var rest sinkList
	for _, s := range all {
		counting, ok := s.(CountingSink)
		if !ok {
			rest = append(rest, s)
			continue
		}
		t, r := counting.Counter(s, origin, group)
		if t != nil {
			tallies = append(tallies, t)
		} else {
			r = s
		}
		if r != nil {
			rest = append(rest, r)
		}
	}
	return single[Counter](tallies, tallies), single[Sink](rest, rest)
}

type tallyList []Counter

// Attempted implements [Counter].
func (all tallyList) Attempted(took time.Duration) {
	for _, t := range all {
		t.Attempted(took)
	}
}

// Committed implements [Counter].
func (all tallyList) Committed() {
	for _, t := range all {
		t.Committed()
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
