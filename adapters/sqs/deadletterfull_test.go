package sqs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// isolate quarantines all that lies there.
func isolate(t *testing.T, q *deadLetters) (deadletter.Task, error) {
	t.Helper()
	return deadletter.Quarantine(t.Context(), q, deadletter.Isolation{
		Who: "ann", Why: "test", Window: 20, Filter: deadletter.Filter{Before: time.Now().Add(time.Hour)},
	})
}

// given puts something into the state, as if it had been there.
func given(t *testing.T, q *deadLetters, change func(*deadletter.Record)) {
	t.Helper()
	if err := q.note(t.Context(), func(r *deadletter.Record) bool { change(r); return true }); err != nil {
		t.Fatal(err)
	}
}

func isFull(t *testing.T, q *deadLetters, task *deadletter.Task, err error, marked int) {
	t.Helper()
	if !errors.Is(err, deadletter.ErrFull) || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != int64(marked) {
		t.Errorf("it is %s with %+v: %v", task.Status, task.Counts, err)
	}
	r, err := q.record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for at := range r.Marks {
		if !strings.HasPrefix(string(at), "other") {
			n++
		}
	}
	if last := r.Tasks[len(r.Tasks)-1]; n != marked || last.Status != deadletter.StatusFailed || last.Counts.Quarantined != int64(marked) || last.Note == "" || r.Claim != nil {
		t.Errorf("%d are marked, and recorded is %+v, with the claim %+v", n, last, r.Claim)
	}
}

// As many marks as there may be.
func TestAQuarantineFailsWhereThereAreTooManyMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bury(t, newFake(), "orders", 40, "")
		defer q.Close()
		given(t, q, func(r *deadletter.Record) {
			r.Marks = make(map[deadletter.Position]deadletter.Outcome)
			for i := range deadletter.MaxMarks - 30 {
				r.Marks[deadletter.Position(fmt.Sprintf("other-%04d", i))] = deadletter.Refused
			}
		})
		task, err := isolate(t, q)
		isFull(t, q, &task, err, 20)
	})
}

// As many bytes as a message holds: all marks were dropped then.
func TestAQuarantineFailsWhereTheStateIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bury(t, newFake(), "orders", 200, "")
		defer q.Close()
		given(t, q, func(r *deadletter.Record) {
			r.Marks = map[deadletter.Position]deadletter.Outcome{"other": deadletter.Refused}
			r.Put(deadletter.Task{ID: "open", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused, Filter: deadletter.Filter{ErrorText: strings.Repeat("x", stateMost-4<<10)}})
		})
		began := time.Now()
		task, err := isolate(t, q)
		if took := time.Since(began); took >= stateHidden {
			t.Errorf("it takes %s: the state stays hidden where it could not be written", took)
		}
		if task.Counts.Quarantined == 0 || task.Counts.Quarantined == 200 {
			t.Fatalf("%d are marked, which tells nothing of the end: %v", task.Counts.Quarantined, err)
		}
		isFull(t, q, &task, err, int(task.Counts.Quarantined))
	})
}

// What is marked stays in front of its group, so that no more of it is seen.
func TestAQuarantineFailsBehindWhatSQSShowsOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bury(t, newFake(), "orders.fifo", 20, "one")
		defer q.Close()
		task, err := isolate(t, q)
		if err != nil || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != 10 || !strings.Contains(task.Note, "not all could be seen") {
			t.Errorf("it is %s with %+v: %q, %v", task.Status, task.Counts, task.Note, err)
		}
	})
}
