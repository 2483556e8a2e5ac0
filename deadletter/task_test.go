package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// An edit or an import that has failed is not unfinished, because it cannot be resumed.
func TestTasksThatCannotBeResumedHaveEnded(t *testing.T) {
	all := []deadletter.Status{
		deadletter.StatusRunning, deadletter.StatusPaused, deadletter.StatusStopped, deadletter.StatusFailed, deadletter.StatusInterrupted,
		deadletter.StatusDone, deadletter.StatusCancelled,
	}
	for _, kind := range []deadletter.Kind{deadletter.KindReplay, deadletter.KindPurge, deadletter.KindEdit, deadletter.KindImport} {
		for i, status := range all {
			task := deadletter.Task{Kind: kind, Status: status}
			continues := kind == deadletter.KindReplay || kind == deadletter.KindPurge
			if resumable := continues && i >= 1 && i <= 4; task.Resumable() != resumable || task.Unfinished() != (resumable || i == 0) {
				t.Errorf("a %s that is %s: Resumable returned %v and Unfinished %v", kind, status, task.Resumable(), task.Unfinished())
			}
		}
	}
}

func TestAFailedEditHasEnded(t *testing.T) {
	h := newFakeDLQ(1)
	task, err := deadletter.Edit(t.Context(), h, deadletter.EditOptions{Who: "ann", Why: "a test", Position: "nowhere", Body: []byte("new")})
	if !errors.Is(err, deadletter.ErrNotFound) || task.Unfinished() || task.Ended.IsZero() {
		t.Errorf("%+v: %v", task, err)
	}
	if _, err := deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ben"}); err == nil || !strings.Contains(err.Error(), "edit that message again") {
		t.Errorf("resumed: %v", err)
	}
}

// slowImport imports 1,200 messages, 500 a second, and calls do when the first 500 are recorded.
func slowImport(t *testing.T, do func(h *fakeDLQ, id string)) (h *fakeDLQ, task deadletter.Task, err error) {
	t.Helper()
	h = newFakeDLQ(1)
	file := exported(t, h, 1200)
	h.messages = nil
	h.onAdd = func(context.Context) { <-time.After(time.Second) }
	h.onSave = func(now deadletter.Task) {
		if now.Counts.Imported == deadletter.DefaultWindow && now.Status == deadletter.StatusRunning {
			do(h, now.ID)
		}
	}
	task, err = deadletter.Import(t.Context(), h, bytes.NewReader(file), deadletter.ImportOptions{Who: "ann", Why: "a test"})
	return h, task, err
}

func TestAnImportReportsProgressAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		h, task, err := slowImport(t, func(h *fakeDLQ, id string) {
			asked = true
			if err := deadletter.Cancel(t.Context(), h, id, deadletter.CancelOptions{Who: "ben"}); err != nil {
				t.Error(err)
			}
		})
		if err != nil || !asked || task.Status != deadletter.StatusCancelled || task.Ended.IsZero() || len(h.messages) != deadletter.DefaultWindow {
			t.Errorf("it ended as %s, and %d are there: %v", task.Status, len(h.messages), err)
		}
		if was := h.onlyTask(t); was.Status != deadletter.StatusCancelled || was.Counts.Imported != deadletter.DefaultWindow {
			t.Errorf("recorded is %+v", was)
		}
	})
}

// Only a task that can be resumed can be paused.
func TestAnImportIsNotPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, task, err := slowImport(t, func(h *fakeDLQ, id string) {
			if err := deadletter.Pause(t.Context(), h, id); err == nil || !strings.Contains(err.Error(), "could not be resumed") {
				t.Errorf("Pause returned %v", err)
			}
			h.requests[id] = deadletter.RequestPause // recorded by an older version
		})
		if err != nil || task.Status != deadletter.StatusDone || len(h.messages) != 1200 {
			t.Errorf("it ended as %s, and %d are there: %v", task.Status, len(h.messages), err)
		}
	})
}

// RabbitMQ does not report the time of a message that another program dead-lettered. Such a message does not count as
// later.
func TestAMessageWithoutATimeIsReplayedByTheNextRunner(t *testing.T) {
	h := newFakeDLQ(0)
	made := time.Now().Add(-time.Hour)
	h.addDeadLetter("without", time.Time{})
	h.addDeadLetter("before", made.Add(-time.Second))
	h.addDeadLetter("after", made.Add(time.Second))
	h.addDeadLetter("again", made.Add(-time.Second)) // by a clock that is behind
	h.messages[3].State.Replays, h.messages[3].State.LastFailed = 1, made.Add(time.Second)
	h.tasks = []deadletter.Task{{ID: "t", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused, Created: made, Window: 10, MaxReplays: 3}}
	task, err := deadletter.Resume(t.Context(), h, "t", deadletter.ResumeOptions{Who: "ben"})
	if err != nil || task.Status != deadletter.StatusDone || strings.Join(h.sent, " ") != "without before" {
		t.Errorf("the replay ended as %s, and %v were sent: %v", task.Status, h.sent, err)
	}
}

// A replay that is resumed with another DLQ configuration would replay messages that another group has handled, and
// send the others to a place that nobody reads.
func TestATaskContinuesOnlyIfItsDLQIsOpenedTheSameWay(t *testing.T) {
	const retry, group = "orders-retry", "billing-retry"
	for name, c := range map[string]struct {
		kind             deadletter.Kind
		replayTo, readBy string // the configuration of the resume
		older            bool
		want             []string // parts of the error
	}{
		"the same":                          {kind: deadletter.KindReplay, replayTo: retry, readBy: group},
		"no ReadBy":                         {kind: deadletter.KindReplay, replayTo: retry, want: []string{`ReadBy (--read-by) "billing-retry"`, `opened with ""`, `ReplayTo "orders-retry"`}},
		"another ReplayTo":                  {kind: deadletter.KindReplay, replayTo: "orders", readBy: group, want: []string{`ReplayTo (--replay-to) "orders-retry"`, `opened with "orders"`}},
		"a purge, no ReadBy":                {kind: deadletter.KindPurge, replayTo: retry, want: []string{"--read-by"}},
		"a purge, which has no destination": {kind: deadletter.KindPurge, replayTo: "orders", readBy: group},
		"a task of an older version":        {kind: deadletter.KindReplay, replayTo: "orders", older: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeDLQ(3)
			h.info.ReplayTo, h.info.ReadBy = retry, group
			var err error
			if c.kind == deadletter.KindPurge {
				_, err = deadletter.Purge(t.Context(), h, deadletter.PurgeOptions{Who: "ann", Why: "a test", Everything: true})
			} else {
				_, err = deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{Who: "ann", Why: "a test"})
			}
			was := h.onlyTask(t)
			if err != nil || was.ReplayTo != retry || was.ReadBy != group {
				t.Fatalf("the recorded task is %+v: %v", was, err)
			}
			h.tasks[0].Status = deadletter.StatusPaused
			if c.older {
				h.tasks[0].ReplayTo, h.tasks[0].ReadBy = "", ""
			}
			h.info.ReplayTo, h.info.ReadBy = c.replayTo, c.readBy
			task, err := deadletter.Resume(t.Context(), h, was.ID, deadletter.ResumeOptions{Who: "ben"})
			if len(c.want) == 0 {
				if err != nil || task.Status != deadletter.StatusDone {
					t.Fatalf("it ended as %s: %v", task.Status, err)
				}
				return
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("resumed: %v, want %q", err, want)
				}
			}
			if h.onlyTask(t).Status != deadletter.StatusPaused || h.claimed != nil {
				t.Errorf("the task is %s, and the DLQ is held by %v", h.onlyTask(t).Status, h.claimed)
			}
		})
	}
}
