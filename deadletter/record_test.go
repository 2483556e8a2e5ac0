package deadletter_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

var buried = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// Who dies between the write of the state and the ack of the old one leaves two.
func TestTwoStatesBecomeOne(t *testing.T) {
	task := func(id string, minute int, s deadletter.Status) deadletter.Task {
		return deadletter.Task{ID: id, Updated: buried.Add(time.Duration(minute) * time.Minute), Status: s}
	}
	older := deadletter.Record{
		Claim: &deadletter.Lease{Who: "ann", Since: buried}, Tasks: []deadletter.Task{task("1", 0, deadletter.StatusRunning), task("2", 5, deadletter.StatusDone)},
		Wants: map[string]deadletter.Wish{"1": {Wanted: deadletter.BePaused, At: buried}}, Marks: map[deadletter.Position]deadletter.Outcome{"a": deadletter.Refused}, Met: 3,
	}
	newer := deadletter.Record{
		Claim: &deadletter.Lease{Who: "ben", Since: buried.Add(time.Hour)}, Tasks: []deadletter.Task{task("1", 1, deadletter.StatusPaused), task("3", 9, deadletter.StatusRunning)},
		Wants: map[string]deadletter.Wish{"1": {Wanted: deadletter.BeCancelled, At: buried.Add(time.Second)}}, Marks: map[deadletter.Position]deadletter.Outcome{"b": deadletter.Quarantined},
	}
	for _, pair := range [][2]deadletter.Record{{older, newer}, {newer, older}} {
		var r deadletter.Record
		for _, one := range pair {
			text, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			var read deadletter.Record
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			r.Merge(&read)
		}
		status := make(map[string]deadletter.Status)
		for _, tk := range r.Tasks {
			status[tk.ID] = tk.Status
		}
		if r.Claim.Who != "ben" || len(status) != 3 || status["1"] != deadletter.StatusPaused || r.Wants["1"].Wanted != deadletter.BeCancelled || len(r.Marks) != 2 || r.Met != 3 {
			t.Errorf("they become %+v", r)
		}
	}
}

// What did not fit was forgotten silently, and so were changes of what did.
func TestMarksAreRefusedBeyondTheirBoundAndNotForgotten(t *testing.T) {
	marks := func(from, to int) map[deadletter.Position]deadletter.Outcome {
		all := make(map[deadletter.Position]deadletter.Outcome)
		for i := from; i < to; i++ {
			all[deadletter.Position(strconv.Itoa(i))] = deadletter.Quarantined
		}
		return all
	}
	var r deadletter.Record
	if err := r.Mark(marks(0, deadletter.MaxMarks-1)); err != nil {
		t.Fatal(err)
	}
	if err := r.Mark(marks(deadletter.MaxMarks-1, deadletter.MaxMarks+1)); !errors.Is(err, deadletter.ErrFull) || len(r.Marks) != deadletter.MaxMarks-1 {
		t.Errorf("two more than fit by one: %v, and there are %d", err, len(r.Marks))
	}
	for _, more := range []map[deadletter.Position]deadletter.Outcome{
		{"new": deadletter.Refused}, {"0": deadletter.Refused}, {"0": "", "newer": deadletter.Refused}, {"nosuch": "", "1": deadletter.Refused},
	} {
		if err := r.Mark(more); err != nil {
			t.Errorf("%v: %v", more, err)
		}
	}
	if _, there := r.Marks["0"]; there || len(r.Marks) != deadletter.MaxMarks || r.Marks["newer"] == "" || r.Marks["1"] != deadletter.Refused {
		t.Errorf("there are %d marks: %v", len(r.Marks), r.Marks["1"])
	}
	other := deadletter.Record{Marks: marks(10_000, 10_100)}
	if r.Merge(&other); len(r.Marks) != deadletter.MaxMarks+100 {
		t.Errorf("of two states there are %d marks", len(r.Marks))
	}
}

func TestTheHistoryForgetsTheOldestThatEnded(t *testing.T) {
	r := deadletter.Record{Wants: map[string]deadletter.Wish{"0": {}, "1": {}}}
	for i := range 102 {
		s := deadletter.StatusDone
		if i == 1 {
			s = deadletter.StatusPaused
		}
		r.Put(deadletter.Task{ID: strconv.Itoa(i), Status: s})
	}
	if len(r.Tasks) != 100 || r.Tasks[0].ID != "1" || len(r.Wants) != 1 {
		t.Errorf("%d tasks are left, the first %s; %d wishes", len(r.Tasks), r.Tasks[0].ID, len(r.Wants))
	}
}

// An edit whose process has died was recorded as running for ever.
func TestTheHistoryForgetsEditsThatDied(t *testing.T) {
	var r deadletter.Record
	for i := range 101 {
		kind := deadletter.KindEdit
		if i == 0 {
			kind = deadletter.KindReplay
		}
		r.Put(deadletter.Task{ID: strconv.Itoa(i), Kind: kind, Status: deadletter.StatusRunning})
	}
	if len(r.Tasks) != 100 || r.Tasks[0].ID != "0" || r.Tasks[1].ID != "2" {
		t.Errorf("%d tasks are left, the first %s and %s", len(r.Tasks), r.Tasks[0].ID, r.Tasks[1].ID)
	}
}

// The mark of a message that has gone by itself is forgotten when it was missed for
// longer than any broker keeps one, and not before; one that was met between is not.
func TestTheMarksOfMessagesThatHaveGoneAreForgotten(t *testing.T) {
	r := &deadletter.Record{}
	if err := r.Mark(map[deadletter.Position]deadletter.Outcome{"there": deadletter.Quarantined, "away": deadletter.Refused, "gone": deadletter.Quarantined}); err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	for n, met := range [][]deadletter.Position{{"there"}, {"there"}, {"there", "away"}, {"there"}, {"there"}} {
		seen := make(map[deadletter.Position]bool)
		for _, at := range met {
			seen[at] = true
		}
		again := &deadletter.Record{} // as it is read, beside what a process that died has left
		again.Merge(r)
		again.Merge(&deadletter.Record{Missed: map[deadletter.Position]time.Time{"nobody's": day}})
		r = again
		r.Forget(seen, day.Add(time.Duration(n)*5*24*time.Hour))
		want := 3
		if n == 3 || n == 4 { // 15 days after it was missed first
			want = 2
		}
		if len(r.Marks) != want || r.Marks["there"] == "" || r.Marks["away"] == "" {
			t.Errorf("after %d days there are the marks %v, missed %v", n*5, r.Marks, r.Missed)
		}
	}
	if len(r.Missed) != 1 || r.Missed["away"].IsZero() {
		t.Errorf("missed are %v", r.Missed)
	}
}
