package dlq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// The companion topic of a DLQ, "<dlq>.state", has the state of package deadletter, and the outcomes of the DLQ's
// records, because a log cannot delete records from its middle. It has one partition, so that all readers see the same
// order, and is compacted. The keys of removed records are "<partition>/<offset>". All other keys are package
// deadletter's.

// removedSpan is a run of adjacent records in a DLQ partition with one outcome. Its times distinguish it from a span
// of an earlier topic of the same name: records of the new topic have later times.
type removedSpan struct {
	From    int64              `json:"-"` // in the key
	Through int64              `json:"through"`
	First   int64              `json:"first"` // earliest timestamp, in Unix milliseconds
	Last    int64              `json:"last"`
	Outcome deadletter.Outcome `json:"outcome"`
}

func (s *removedSpan) contains(offset int64, at time.Time) bool {
	ms := at.UnixMilli()
	return offset >= s.From && offset <= s.Through && ms >= s.First && ms <= s.Last
}

// removedSpans are the spans of one partition, by offset. They do not overlap.
type removedSpans []removedSpan

// find returns the index of the span that contains an offset, or -1.
func (spans removedSpans) find(offset int64) int {
	i, found := slices.BinarySearchFunc(spans, offset, func(s removedSpan, o int64) int {
		switch {
		case o < s.From:
			return 1
		case o > s.Through:
			return -1
		default:
			return 0
		}
	})
	if !found {
		return -1
	}
	return i
}

// put adds a span in place of one that begins at the same offset, and of those of an earlier topic that overlap it.
func (spans removedSpans) put(s removedSpan) removedSpans {
	i, found := slices.BinarySearchFunc(spans, s.From, func(s removedSpan, from int64) int { return cmp.Compare(s.From, from) })
	end := i
	if found {
		end++
	}
	for i > 0 && spans[i-1].Through >= s.From && spans[i-1].Last < s.First {
		i--
	}
	for end < len(spans) && spans[end].From <= s.Through && spans[end].Last < s.First {
		end++
	}
	return slices.Replace(spans, i, end, s)
}

func (spans removedSpans) drop(from int64) removedSpans {
	return slices.DeleteFunc(spans, func(s removedSpan) bool { return s.From == from })
}

// ledger has the contents of the state topic up to an offset. Queue.mu guards it.
type ledger struct {
	next       int64 // offset in the state topic
	removed    map[int32]removedSpans
	state      driver.State
	unreadable int // records that redeliver cannot have written
}

func newLedger() *ledger {
	return &ledger{removed: make(map[int32]removedSpans), state: make(driver.State)}
}

// apply reads one record of the state topic. It skips garbage, which settles nothing.
func (l *ledger) apply(key, value []byte) {
	partition, offset, err := record.ParsePosition(string(key))
	switch {
	case err == nil:
		err = l.applySpan(partition, offset, value)
	case value == nil || json.Valid(value) && strings.Contains(string(key), "/"):
		l.state.Put(driver.Entry{Key: string(key), Value: value})
		err = nil
	}
	if err != nil {
		l.unreadable++
	}
}

func (l *ledger) applySpan(partition int32, offset int64, value []byte) error {
	if value == nil {
		l.removed[partition] = l.removed[partition].drop(offset)
		return nil
	}
	span := removedSpan{From: offset}
	if err := json.Unmarshal(value, &span); err != nil {
		return err
	}
	if span.Through < span.From || span.Through == math.MaxInt64 || !span.Outcome.LeavesDLQ() { // there is always a next offset
		return fmt.Errorf("%d/%d ends at %d as %s", partition, offset, span.Through, span.Outcome)
	}
	l.removed[partition] = l.removed[partition].put(span)
	return nil
}

// isRemoved reports whether a record is removed. It forgets spans of an earlier topic of the same name.
func (l *ledger) isRemoved(partition int32, offset int64, at time.Time) bool {
	for {
		spans := l.removed[partition]
		i := spans.find(offset)
		if i < 0 || spans[i].contains(offset, at) {
			return i >= 0
		}
		l.removed[partition] = spans.drop(spans[i].From)
	}
}

// prefix returns the first offset from start on that is not removed.
func (l *ledger) prefix(partition int32, start int64) int64 {
	for {
		i := l.removed[partition].find(start)
		if i < 0 {
			return start
		}
		start = l.removed[partition][i].Through + 1
	}
}
