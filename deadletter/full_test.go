package deadletter_test

import (
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

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
