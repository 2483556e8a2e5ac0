package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// sequence is the scope of an order: a key in a partition.
type sequence struct {
	load, key string
	partition int32
}

// checkOrder checks that the first run of each message of a key comes after the earlier messages have got as far as the
// load's order requires. A message that was settled before a fault may run again after later ones, so only the first
// run counts, and no fault excuses it.
func (c *checker) checkOrder() {
	lines := make(map[sequence][]*message)
	for _, m := range c.messages {
		// A write without an answer has no position in the order.
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
			c.checkPair(c.loads[k.load], all[i-1], all[i])
		}
	}
}

// checkPair checks that b's first run comes after a has got far enough. If that holds for all consecutive pairs, it
// holds for the key.
func (c *checker) checkPair(load Load, a, b *message) {
	first, through := firstRun(b), int64(math.MaxInt64)
	for _, l := range a.lines {
		switch {
		case l.Kind != End || l.Outcome == Cut:
		case load.Order == OrderThroughRetries && l.Outcome == Failed && l.Attempt < load.attempts(Always): // it keeps its position
		default:
			through = min(through, l.At)
		}
	}
	if first < through {
		detail := "it has not got there at all"
		if through != math.MaxInt64 {
			detail = "it got there " + time.Duration(through-first).String() + " later"
		}
		c.violatef(OutOfLine, b.ID, "it ran before %s of its key, which comes before it (%s): %s; %s: %s", a.ID, load.Order, detail, b.describe(), a.describe())
	}
}

// firstRun returns when a message first ran. The result for a message that never ran is later than any time.
func firstRun(m *message) int64 {
	for _, l := range m.lines {
		if l.Kind == Begin {
			return l.At
		}
	}
	return math.MaxInt64
}
