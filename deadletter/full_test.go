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

// markedDLQ is a fakeDLQ that keeps its marks as on RabbitMQ and SQS.
type markedDLQ struct {
	*fakeDLQ
	marks map[deadletter.Position]deadletter.Outcome
}

func (q *markedDLQ) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.fakeDLQ.Claim(ctx, holder)
	return &markedDLQClaim{c, q}, err
}

type markedDLQClaim struct {
	deadletter.Claim
	q *markedDLQ
}

func (c *markedDLQClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
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
		return errors.New("messages that leave and messages that stay are settled in one call")
	}
	if n := len(c.q.marks) + len(marks); len(marks) > 0 && n > deadletter.MaxMarks {
		return fmt.Errorf("%w: %d would be more than %d", deadletter.ErrStateFull, n, deadletter.MaxMarks)
	}
	maps.Copy(c.q.marks, marks)
	return c.Claim.Settle(ctx, t, done)
}

// A quarantine does not report that more messages are marked than a DLQ can have marks.
func TestAQuarantineFailsAboveTheNumberOfMarks(t *testing.T) {
	q := &markedDLQ{newFakeDLQ(deadletter.MaxMarks + 300), make(map[deadletter.Position]deadletter.Outcome)}
	i := deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{Before: time.Now()}}
	task, err := deadletter.Quarantine(t.Context(), q, i)
	if !errors.Is(err, deadletter.ErrStateFull) || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != deadletter.MaxMarks || len(q.marks) != deadletter.MaxMarks {
		t.Errorf("the task is %s with %+v, and %d messages are marked: %v", task.Status, task.Counts, len(q.marks), err)
	}
	if was := q.onlyTask(t); was.Status != deadletter.StatusFailed || was.Counts.Quarantined != deadletter.MaxMarks || !strings.Contains(was.Note, "2000") {
		t.Errorf("recorded is %+v", was)
	}
}

// A replay continues without room for its marks.
func TestAReplayContinuesWithoutRoomForMarks(t *testing.T) {
	q := &markedDLQ{newFakeDLQ(6), make(map[deadletter.Position]deadletter.Outcome)}
	for _, m := range newFakeDLQ(deadletter.MaxMarks).messages {
		q.marks["another-"+m.Position] = deadletter.Refused
	}
	q.messages[1].State.Replays, q.messages[4].State.Replays = 3, 3
	reported := 0
	task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 2, Report: deadletter.Report{
		Result: func(deadletter.Result) { reported++ },
	}})
	if err != nil || task.Status != deadletter.StatusDone || len(q.sent) != 4 || len(q.messages) != 2 || task.Counts.Replayed != 4 || task.Counts.Quarantined != 2 || reported != 6 {
		t.Errorf("the task is %s with %+v, sent were %v, %d results: %v", task.Status, task.Counts, q.sent, reported, err)
	}
	if was := q.onlyTask(t); !strings.HasPrefix(was.Note, "2 messages that are quarantined or refused stay without a mark") {
		t.Errorf("its note is %q", was.Note)
	}
}

// A window whose names do not fit into the state is recorded in parts. Otherwise the task would fail, and each resume
// would send the same messages again.
func TestAWindowThatDoesNotFitIsRecordedInParts(t *testing.T) {
	refused := 0
	newSmallDLQ := func() *fakeDLQ { // its state has room for the names of three messages that are being settled
		q := newFakeDLQ(10)
		refused, q.refuse = 0, func(t deadletter.Task) error {
			if len(t.Settling) <= 3*8 {
				return nil
			}
			refused++
			return deadletter.ErrStateFull
		}
		return q
	}
	q, reported := newSmallDLQ(), 0
	report := deadletter.Report{Result: func(deadletter.Result) { reported++ }}
	task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 10, Report: report})
	if err != nil || task.Counts.Replayed != 10 || task.Note != "" || len(q.messages) != 0 || len(q.sent) != 10 || reported != 10 || refused == 0 {
		t.Errorf("the replay is %s with %+v and %q, %d messages are left, %d were sent, %d reported: %v", task.Status, task.Counts, task.Note, len(q.messages), len(q.sent), reported, err)
	}
	q = newSmallDLQ()
	task, err = deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true, Expect: 10, Window: 10})
	if err != nil || task.Counts.Purged != 10 || len(q.messages) != 0 || refused == 0 {
		t.Errorf("the purge is %s with %+v, and %d messages are left: %v", task.Status, task.Counts, len(q.messages), err)
	}
}

// markReports is a fakeDLQ that records the calls of DropMarks.
type markReports struct {
	*fakeDLQ
	reported []map[deadletter.Position]bool
}

func (q *markReports) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.fakeDLQ.Claim(ctx, holder)
	return &markReportClaim{c, q}, err
}

type markReportClaim struct {
	deadletter.Claim
	q *markReports
}

func (c *markReportClaim) DropMarks(_ context.Context, found map[deadletter.Position]bool) error {
	c.q.reported = append(c.q.reported, found)
	return errors.New("no answer")
}

// Only a runner that has read the whole DLQ reports which marked messages it has found. An error of that report does
// not fail the task.
func TestACompleteScanDropsMarks(t *testing.T) {
	q := &markReports{fakeDLQ: newFakeDLQ(30)}
	task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true, Expect: 30, Window: 10})
	if err != nil || task.Counts.Purged != 30 || len(q.reported) != 0 {
		t.Fatalf("a purge that stops at the expected number returned %+v, and reported %v: %v", task.Counts, q.reported, err)
	}
	q = &markReports{fakeDLQ: newFakeDLQ(30)}
	before := deadletter.Filter{Before: time.Now().Add(time.Hour)}
	if task, err := deadletter.Quarantine(t.Context(), q, deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: before}); err != nil || task.Status != deadletter.StatusDone {
		t.Fatalf("the quarantine returned %+v: %v", task, err)
	}
	if len(q.reported) != 1 || len(q.reported[0]) != 30 {
		t.Errorf("it reported %d marks: %v", len(q.reported), q.reported)
	}
}
