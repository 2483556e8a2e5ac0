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
)

// A DLQ's companion topic, "<dlq>.state", says what became of its records, which
// a log cannot lose from its middle. It has one partition, so that everybody reads
// the same order, and is compacted. Its keys:
//
//	claim                        who has the DLQ, for how long
//	task/<id>, want/<id>         the tasks, and what is asked of them
//	<partition>/<offset>         records from that offset on are out
//	<partition>/<offset>/mark    records from that offset on are marked
const (
	claimKey   = "claim"
	taskPrefix = "task/"
	wantPrefix = "want/"
	markSuffix = "/mark"
)

// span is neighbours in a partition of the DLQ of which the same became. The
// times tell it from a span of an earlier topic of the same name, which was
// deleted: no record that was written later lies between them.
type span struct {
	From    int64              `json:"-"` // in the key
	Through int64              `json:"through"`
	First   int64              `json:"first"` // the earliest timestamp, in Unix milliseconds
	Last    int64              `json:"last"`
	Outcome deadletter.Outcome `json:"outcome"`
	Task    string             `json:"task,omitempty"`
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

// lease is who has the DLQ. Of the records of one epoch the first counts, and
// what its owner renews.
type lease struct {
	Epoch    int64         `json:"epoch"`
	Token    string        `json:"token"` // of one claim
	Who      string        `json:"who"`
	Task     string        `json:"task"`
	Since    time.Time     `json:"since"`
	Renewed  time.Time     `json:"renewed"`
	Lasts    time.Duration `json:"lasts"`
	Released bool          `json:"released,omitempty"`
}

func (l *lease) until() time.Time { return l.Renewed.Add(l.Lasts) }

func (l *lease) held(now time.Time) bool {
	return l.Token != "" && !l.Released && now.Before(l.until())
}

func (l *lease) holder() deadletter.Holder {
	return deadletter.Holder{Who: l.Who, Task: l.Task, Since: l.Since, Until: l.until()}
}

// ledger is what the state topic says up to an offset. It has no lock of its own.
type ledger struct {
	next  int64 // of the state topic
	out   map[int32]spans
	marks map[int32]spans
	tasks []deadletter.Task // in the order in which they were first saved
	wants map[string]deadletter.Wanted
	lease lease
	// strange counts records that nobody here can have written.
	strange int
}

func newLedger() *ledger {
	return &ledger{out: make(map[int32]spans), marks: make(map[int32]spans), wants: make(map[string]deadletter.Wanted)}
}

// apply reads one record of the state topic. What is garbage is passed over: a
// record that says nothing settles nothing.
func (l *ledger) apply(key, value []byte) {
	k := string(key)
	var err error
	switch {
	case k == claimKey:
		var next lease
		if err = unmarshalOr(value, &next); err == nil && (next.Epoch > l.lease.Epoch || next.Epoch == l.lease.Epoch && next.Token == l.lease.Token) {
			l.lease = next
		}
	case strings.HasPrefix(k, taskPrefix):
		err = l.task(strings.TrimPrefix(k, taskPrefix), value)
	case strings.HasPrefix(k, wantPrefix):
		l.wants[strings.TrimPrefix(k, wantPrefix)] = deadletter.Wanted(value)
		if value == nil {
			delete(l.wants, strings.TrimPrefix(k, wantPrefix))
		}
	default:
		err = l.span(k, value)
	}
	if err != nil {
		l.strange++
	}
}

func (l *ledger) task(id string, value []byte) error {
	i := slices.IndexFunc(l.tasks, func(t deadletter.Task) bool { return t.ID == id })
	if value == nil {
		if i >= 0 {
			l.tasks = slices.Delete(l.tasks, i, i+1)
		}
		return nil
	}
	var t deadletter.Task
	if err := json.Unmarshal(value, &t); err != nil || t.ID != id {
		return fmt.Errorf("task %s is unreadable: %w", id, err)
	}
	if i < 0 {
		l.tasks = append(l.tasks, t)
	} else {
		l.tasks[i] = t
	}
	return nil
}

func (l *ledger) span(key string, value []byte) error {
	place, mark := strings.CutSuffix(key, markSuffix)
	partition, offset, err := parsePlace(place)
	if err != nil {
		return err
	}
	all := l.out
	if mark {
		all = l.marks
	}
	if value == nil {
		all[partition] = all[partition].drop(offset)
		return nil
	}
	s := span{From: offset}
	if err := json.Unmarshal(value, &s); err != nil {
		return err
	}
	if s.Through < s.From || s.Through == math.MaxInt64 || s.Outcome.Out() == mark { // behind each there is another
		return fmt.Errorf("%s ends at %d as %s", key, s.Through, s.Outcome)
	}
	all[partition] = all[partition].put(s)
	return nil
}

// settled tells whether a record is out; a span that cannot be about it, because
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

func (l *ledger) mark(partition int32, offset int64, at time.Time) deadletter.Outcome {
	if i := l.marks[partition].find(offset); i >= 0 && l.marks[partition][i].holds(offset, at) {
		return l.marks[partition][i].Outcome
	}
	return ""
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

func unmarshalOr(value []byte, into any) error {
	if value == nil {
		return nil
	}
	return json.Unmarshal(value, into)
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
