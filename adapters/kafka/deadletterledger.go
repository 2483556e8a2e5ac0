package kafka

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// A DLQ's companion topic, "<dlq>.state", is the state that package deadletter keeps, and
// says what became of the DLQ's records, which a log cannot lose from its middle. It has
// one partition, so that everybody reads the same order, and is compacted. The keys of the
// records that are out are "<partition>/<offset>"; all others are package deadletter's.

// span is neighbours in a partition of the DLQ of which the same became. The
// times tell it from a span of an earlier topic of the same name, which was
// deleted: no record that was written later lies between them.
type span struct {
	From    int64              `json:"-"` // in the key
	Through int64              `json:"through"`
	First   int64              `json:"first"` // the earliest timestamp, in Unix milliseconds
	Last    int64              `json:"last"`
	Outcome deadletter.Outcome `json:"outcome"`
}

func (s *span) holds(offset int64, at time.Time) bool {
	ms := at.UnixMilli()
	return offset >= s.From && offset <= s.Through && ms >= s.First && ms <= s.Last
}

// spans of one partition, by offset. They do not overlap.
type spans []span

// find is the span in which an offset lies, or -1.
func (ss spans) find(offset int64) int {
	i, found := slices.BinarySearchFunc(ss, offset, func(s span, o int64) int {
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

// put adds a span in place of the one that begins where it does.
func (ss spans) put(s span) spans {
	i, found := slices.BinarySearchFunc(ss, s.From, func(x span, from int64) int { return int(min(1, max(-1, x.From-from))) })
	if found {
		ss[i] = s
		return ss
	}
	return slices.Insert(ss, i, s)
}

func (ss spans) drop(from int64) spans {
	return slices.DeleteFunc(ss, func(s span) bool { return s.From == from })
}

// ledger is what the state topic says up to an offset. It has no lock of its own.
type ledger struct {
	next  int64 // of the state topic
	out   map[int32]spans
	state driver.State
	// strange counts records that nobody here can have written.
	strange int
}

func newLedger() *ledger {
	return &ledger{out: make(map[int32]spans), state: make(driver.State)}
}

// apply reads one record of the state topic. What is garbage is passed over: a
// record that says nothing settles nothing.
func (l *ledger) apply(key, value []byte) {
	partition, offset, err := parsePlace(string(key))
	switch {
	case err == nil:
		err = l.span(partition, offset, value)
	case value == nil || json.Valid(value) && strings.Contains(string(key), "/"):
		l.state.Put(driver.Entry{Key: string(key), Value: value})
		err = nil
	}
	if err != nil {
		l.strange++
	}
}

func (l *ledger) span(partition int32, offset int64, value []byte) error {
	if value == nil {
		l.out[partition] = l.out[partition].drop(offset)
		return nil
	}
	s := span{From: offset}
	if err := json.Unmarshal(value, &s); err != nil {
		return err
	}
	if s.Through < s.From || s.Through == math.MaxInt64 || !s.Outcome.Out() { // behind each there is another
		return fmt.Errorf("%d/%d ends at %d as %s", partition, offset, s.Through, s.Outcome)
	}
	l.out[partition] = l.out[partition].put(s)
	return nil
}

// settled reports whether a record is out; a span that cannot be about it, because
// the topic was made anew, is forgotten.
func (l *ledger) settled(partition int32, offset int64, at time.Time) bool {
	i := l.out[partition].find(offset)
	if i < 0 {
		return false
	}
	if s := l.out[partition][i]; !s.holds(offset, at) {
		l.out[partition] = l.out[partition].drop(s.From)
		return false
	}
	return true
}

// prefix is the offset up to which all from start on is out.
func (l *ledger) prefix(partition int32, start int64) int64 {
	for {
		i := l.out[partition].find(start)
		if i < 0 {
			return start
		}
		start = l.out[partition][i].Through + 1
	}
}

func placeKey(partition int32, offset int64) string {
	return strconv.FormatInt(int64(partition), 10) + "/" + strconv.FormatInt(offset, 10)
}

func parsePlace(s string) (partition int32, offset int64, err error) {
	p, o, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no place: it is partition/offset", s)
	}
	n, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	offset, err = strconv.ParseInt(o, 10, 64)
	if err == nil && (n < 0 || offset < 0) {
		err = fmt.Errorf("%q is no place: there are neither partitions nor offsets below 0", s)
	}
	return int32(n), offset, err
}
