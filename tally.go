package redeliver

import "time"

// Tallying is a Sink that counts what most messages have and nothing else: a first
// attempt that succeeds, and its commit. It needs no event for them: with events a message
// in BenchmarkObserved/prometheus of package observe/otel takes 3 times as long and has 2
// allocations more.
type Tallying interface {
	Sink
	// Tally returns what counts the messages of a subscription, and who must still be told
	// of them by events, as Wants has it; nil for nobody. A nil Tally is none: then all are
	// told by events. of is the Sink that is asked. One that embeds another has its Tally,
	// too, which cannot count what the outer Event does: it returns nil where of is not
	// itself. It is asked when the first message comes, maybe more than once, and from
	// many goroutines.
	Tally(of Sink, origin, group string) (t Tally, rest Sink)
}

// Tally counts messages of one subscription, in the place of two events. Its methods are
// called as Event is, and one that panics is not heard. All other events are told as ever,
// those of attempts that fail or were not the first among them.
type Tally interface {
	// Attempted stands for [Attempted] of a message that came for the first time (its
	// State.Attempts and Replays are 0, it did not wait before) and succeeded.
	Attempted(took time.Duration)
	// Committed stands for [Committed] of such a message.
	Committed()
}

// Tally implements [Tallying]: those of the sinks that count do, and the others are told.
func (all sinkList) Tally(_ Sink, origin, group string) (Tally, Sink) {
	var tallies tallyList
	var rest sinkList
	for _, s := range all {
		counting, ok := s.(Tallying)
		if !ok {
			rest = append(rest, s)
			continue
		}
		t, r := counting.Tally(s, origin, group)
		if t != nil {
			tallies = append(tallies, t)
		} else {
			r = s
		}
		if r != nil {
			rest = append(rest, r)
		}
	}
	return one[Tally](tallies, tallies), one[Sink](rest, rest)
}

type tallyList []Tally

// Attempted implements [Tally].
func (all tallyList) Attempted(took time.Duration) {
	for _, t := range all {
		t.Attempted(took)
	}
}

// Committed implements [Tally].
func (all tallyList) Committed() {
	for _, t := range all {
		t.Committed()
	}
}

// one is what stands for several, or, without a loop, for one or none. several is all.
func one[T any](all []T, several T) T {
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
