package deadletter_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// expecting returns the options to purge everything after n messages were shown.
func expecting(n int64) deadletter.PurgeOptions {
	return deadletter.PurgeOptions{Who: "ann", Why: "a test", Everything: true, Expect: n}
}

// The runner finds messages that arrived after the count. It does not remove them, because the caller has not seen
// them.
func TestAPurgeTouchesNothingThatCameAfterItWasCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeDLQ(3)
		scans := 0
		h.onScan = func(bool) {
			if scans++; scans == 2 { // the first one counts
				<-time.After(time.Second)
				h.addDeadLetter("late-1", time.Now())
				h.addDeadLetter("late-2", time.Now())
			}
		}
		task, err := deadletter.Purge(t.Context(), h, expecting(5)) // two of the expected messages are gone by now
		if err != nil || task.Counts.Purged != 3 || task.Status != deadletter.StatusDone || len(h.messages) != 2 || h.messages[0].ID != "late-1" {
			t.Errorf("%d were removed and %v are left: %v", task.Counts.Purged, h.ids(), err)
		}
	})
}

// Even if the clocks are wrong, a purge never removes more messages than were expected, also when another runner
// resumes it.
func TestAPurgeNeverRemovesMoreThanWasExpected(t *testing.T) {
	h := newFakeDLQ(0)
	for _, id := range []string{"a", "b", "c"} {
		h.addDeadLetter(id, time.Time{})
	}
	scans := 0
	h.onScan = func(bool) {
		if scans++; scans == 2 { // the first one counts
			h.addDeadLetter("d", time.Time{})
			h.addDeadLetter("e", time.Time{})
		}
	}
	p := expecting(3)
	p.Window = 2
	p.Report.Progress = func(now deadletter.Task) {
		if now.Counts.Purged == 2 {
			h.requests[now.ID] = deadletter.RequestPause
		}
	}
	task, err := deadletter.Purge(t.Context(), h, p)
	if err == nil && task.Status == deadletter.StatusPaused {
		task, err = deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ben"})
	}
	if err != nil || task.Counts.Purged != 3 || len(h.messages) != 2 || h.messages[0].ID != "d" {
		t.Errorf("%d were removed and %v are left: %v", task.Counts.Purged, h.ids(), err)
	}
}

func TestAPurgeAboveExpectIsRefused(t *testing.T) {
	h := newFakeDLQ(3)
	if _, err := deadletter.Purge(t.Context(), h, expecting(2)); !errors.Is(err, deadletter.ErrTooMany) || len(h.messages) != 3 || h.claimed != nil {
		t.Errorf("of three, with two expected: %v, and %v remain", err, h.ids())
	}
	if _, err := deadletter.Purge(t.Context(), h, expecting(-1)); err == nil {
		t.Error("-1 was expected")
	}
	if task, err := deadletter.Purge(t.Context(), h, expecting(3)); err != nil || task.Counts.Purged != 3 || task.Expect != 3 {
		t.Errorf("%+v: %v", task, err)
	}
}
