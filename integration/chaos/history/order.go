package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// sequence is where messages have an order: a key in a partition.
type sequence struct {
	load, key string
	partition int32
}

// judgeOrder wants each message of a key to run for the first time after those before it have got so far as the load's
// order says. A message that was settled before a fault may run again after later ones, so only the first run counts,
// and no fault excuses it.
func (c *checker) judgeOrder() {
	lines := make(map[sequence][]*message)
	for _, m := range c.messages {
		// A write without an answer has no place in the order.
		if load := c.loads[m.Load]; load.Order != "" && m.Key != "" && m.confirmed {
			k := sequence{m.Load, m.Key, m.Partition}
			lines[k] = append(lines[k], m)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(lines), func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.load, b.load), cmp.Compare(a.key, b.key), cmp.Compare(a.partition, b.partition))
	}) {
		all := lines[k]
		slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.Offset, b.Offset) })
		for i := 1; i < len(all); i++ {
			c.judgePair(c.loads[k.load], all[i-1], all[i])
		}
	}
}

// judgePair wants b's first run after a has gone so far. Being so for each two neighbours it is so for all of the key.
func (c *checker) judgePair(load Load, a, b *message) {
	first, through := firstRun(b), int64(math.MaxInt64)
	for _, l := range a.lines {
		switch {
		case l.Kind != End || l.Outcome == Cut:
		case load.Order == PerKey && l.Outcome == Failed && l.Attempt < load.attempts(Always): // it holds its place
		default:
			through = min(through, l.At)
		}
	}
	if first < through {
		detail := "it has not got there at all"
		if through != math.MaxInt64 {
			detail = "it got there " + time.Duration(through-first).String() + " later"
		}
		c.violatef(OutOfLine, b.ID, "it ran before %s of its key, which comes before it (%s): %s; %s: %s", a.ID, load.Order, detail, b.signs(), a.signs())
	}
}

// firstRun is when a message was first run; what never ran, runs never.
func firstRun(m *message) int64 {
	for _, l := range m.lines {
		if l.Kind == Begin {
			return l.At
		}
	}
	return math.MaxInt64
}
