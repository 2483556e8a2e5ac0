package sqs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// quarantineAll quarantines all messages of a DLQ.
func quarantineAll(t *testing.T, q *testDLQ) (deadletter.Task, error) {
	t.Helper()
	return deadletter.Quarantine(t.Context(), q, deadletter.QuarantineOptions{
		Who: "ann", Why: "test", Window: 20, Filter: deadletter.Filter{Before: time.Now().Add(time.Hour)},
	})
}

// addState adds entries to the state.
func addState(t *testing.T, q *testDLQ, entries ...driver.Entry) {
	t.Helper()
	if err := q.own.Append(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
}

// refusedMark returns the mark of a message.
func refusedMark(at string) driver.Entry {
	return driver.Entry{Key: "mark/" + at, Value: []byte(`{"outcome":"refused","time":1}`)}
}

// markedPositions returns the positions that have a mark.
func markedPositions(t *testing.T, q *testDLQ) (all []string) {
	t.Helper()
	state, err := q.own.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range state {
		if at, ok := strings.CutPrefix(key, "mark/"); ok {
			all = append(all, at)
		}
	}
	return all
}

func wantFull(t *testing.T, q *testDLQ, task *deadletter.Task, err error, marked int) {
	t.Helper()
	if !errors.Is(err, deadletter.ErrStateFull) || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != int64(marked) {
		t.Errorf("the task is %s with %+v: %v", task.Status, task.Counts, err)
	}
	n := 0
	for _, at := range markedPositions(t, q) {
		if !strings.HasPrefix(at, "other") {
			n++
		}
	}
	tasks, err := q.Tasks(t.Context())
	_, held, failed := q.Holder(t.Context())
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if last := tasks[len(tasks)-1]; n != marked || last.Status != deadletter.StatusFailed || last.Counts.Quarantined != int64(marked) || last.Note == "" || held {
		t.Errorf("%d messages are marked, the recorded task is %+v, the claim is held: %t", n, last, held)
	}
}

// The number of marks is limited.
func TestQuarantineFailsWithTooManyMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openTestDLQ(t, newFake(), "orders", 40, "")
		defer q.Close()
		var others []driver.Entry
		for i := range deadletter.MaxMarks - 30 {
			others = append(others, refusedMark(fmt.Sprintf("other-%04d", i)))
		}
		addState(t, q, others...)
		task, err := quarantineAll(t, q)
		wantFull(t, q, &task, err, 20)
	})
}

// A state that would be larger than a message keeps the marks that it has.
func TestQuarantineFailsIfTheStateIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openTestDLQ(t, newFake(), "orders", 200, "")
		defer q.Close()
		open := deadletter.Task{ID: "open", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused, Filter: deadletter.Filter{ErrorText: strings.Repeat("x", 232<<10)}}
		text, err := json.Marshal(open)
		if err != nil {
			t.Fatal(err)
		}
		addState(t, q, refusedMark("other"), driver.Entry{Key: "task/open", Value: text})
		began := time.Now()
		task, err := quarantineAll(t, q)
		if took := time.Since(began); took >= 10*time.Second {
			t.Errorf("it takes %s: the state stays hidden after a failed write", took)
		}
		if task.Counts.Quarantined == 0 || task.Counts.Quarantined == 200 {
			t.Fatalf("%d messages are marked, so the end of the task is unknown: %v", task.Counts.Quarantined, err)
		}
		wantFull(t, q, &task, err, int(task.Counts.Quarantined))
	})
}

// Marked messages stay at the head of their group, so SQS delivers no more messages of the group.
func TestQuarantineFailsBehindTheVisiblePartOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openTestDLQ(t, newFake(), "orders.fifo", 20, "one")
		defer q.Close()
		task, err := quarantineAll(t, q)
		if err != nil || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != 10 || !strings.Contains(task.Note, "not all messages could be read") {
			t.Errorf("the task is %s with %+v: %q, %v", task.Status, task.Counts, task.Note, err)
		}
	})
}
