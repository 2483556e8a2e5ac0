package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// marked is a heap whose state keeps its marks as on RabbitMQ and SQS.
type marked struct {
	*heap
	marks map[deadletter.Position]deadletter.Outcome
}

func (q *marked) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.heap.Claim(ctx, holder)
	return &markedClaim{c, q}, err
}

type markedClaim struct {
	deadletter.Claim
	q *marked
}

func (c *markedClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	marks := make(map[deadletter.Position]deadletter.Outcome)
	out := 0
	for _, s := range done {
		if s.Outcome.LeavesDLQ() {
			out++
		} else {
			marks[s.Message.Position] = s.Outcome
		}
	}
	if out > 0 && len(marks) > 0 {
		return errors.New("what is out and what stays are told at once")
	}
	if n := len(c.q.marks) + len(marks); len(marks) > 0 && n > deadletter.MaxMarks {
		return fmt.Errorf("%w: %d would be more than %d", deadletter.ErrStateFull, n, deadletter.MaxMarks)
	}
	maps.Copy(c.q.marks, marks)
	return c.Claim.Settle(ctx, t, done)
}

// A quarantine of 5,000 messages used to report that all were done, and a replay took 3,000 of them.
func TestAQuarantineOfMoreThanCanBeMarkedFails(t *testing.T) {
	q := &marked{newHeap(deadletter.MaxMarks + 300), make(map[deadletter.Position]deadletter.Outcome)}
	i := deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{Before: time.Now()}}
	task, err := deadletter.Quarantine(t.Context(), q, i)
	if !errors.Is(err, deadletter.ErrStateFull) || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != deadletter.MaxMarks || len(q.marks) != deadletter.MaxMarks {
		t.Errorf("it is %s with %+v, and %d are marked: %v", task.Status, task.Counts, len(q.marks), err)
	}
	if was := q.only(t); was.Status != deadletter.StatusFailed || was.Counts.Quarantined != deadletter.MaxMarks || !strings.Contains(was.Note, "2000") {
		t.Errorf("recorded is %+v", was)
	}
}

// A replay continues without room for its marks.
func TestAReplayContinuesWhereNothingCanBeMarked(t *testing.T) {
	q := &marked{newHeap(6), make(map[deadletter.Position]deadletter.Outcome)}
	for _, m := range newHeap(deadletter.MaxMarks).lie {
		q.marks["of another "+m.Position] = deadletter.Refused
	}
	q.lie[1].State.Replays, q.lie[4].State.Replays = 3, 3
	told := 0
	task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 2, Report: deadletter.Report{
		Result: func(deadletter.Result) { told++ },
	}})
	if err != nil || task.Status != deadletter.StatusDone || len(q.back) != 4 || len(q.lie) != 2 || task.Counts.Replayed != 4 || task.Counts.Quarantined != 2 || told != 6 {
		t.Errorf("it is %s with %+v, sent were %v, %d reported: %v", task.Status, task.Counts, q.back, told, err)
	}
	if was := q.only(t); !strings.HasPrefix(was.Note, "2 that are quarantined or refused stay without a mark") {
		t.Errorf("its note is %q", was.Note)
	}
}

// forgetful is a heap that records which marked messages were met.
type forgetful struct {
	*heap
	told []map[deadletter.Position]bool
}

func (q *forgetful) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.heap.Claim(ctx, holder)
	return &forgetfulClaim{c, q}, err
}

type forgetfulClaim struct {
	deadletter.Claim
	q *forgetful
}

func (c *forgetfulClaim) DropMarks(_ context.Context, met map[deadletter.Position]bool) error {
	c.q.told = append(c.q.told, met)
	return errors.New("no answer")
}

// Only a runner that has seen the whole DLQ reports which marked messages it has met. An error of that report fails
// nothing.
func TestACompleteScanDropsMarks(t *testing.T) {
	q := &forgetful{heap: newHeap(30)}
	task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true, Expect: 30, Window: 10})
	if err != nil || task.Counts.Purged != 30 || len(q.told) != 0 {
		t.Fatalf("a purge that stops at the shown number says %+v, and reported %v: %v", task.Counts, q.told, err)
	}
	q = &forgetful{heap: newHeap(30)}
	before := deadletter.Filter{Before: time.Now().Add(time.Hour)}
	if task, err := deadletter.Quarantine(t.Context(), q, deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: before}); err != nil || task.Status != deadletter.StatusDone {
		t.Fatalf("the quarantine says %+v: %v", task, err)
	}
	if len(q.told) != 1 || len(q.told[0]) != 30 {
		t.Errorf("it reported %d: %v", len(q.told), q.told)
	}
}
