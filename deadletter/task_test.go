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

// An edit or an import that failed once stayed open forever. It could not be resumed, and checks reported it every day.
func TestTasksThatCannotBeResumedHaveEnded(t *testing.T) {
	all := []deadletter.Status{
		deadletter.StatusRunning, deadletter.StatusPaused, deadletter.StatusStopped, deadletter.StatusFailed, deadletter.StatusInterrupted,
		deadletter.StatusDone, deadletter.StatusCancelled,
	}
	for _, kind := range []deadletter.Kind{deadletter.KindReplay, deadletter.KindPurge, deadletter.KindEdit, deadletter.KindImport} {
		for i, status := range all {
			task := deadletter.Task{Kind: kind, Status: status}
			goesOn := kind == deadletter.KindReplay || kind == deadletter.KindPurge
			if resumable := goesOn && i >= 1 && i <= 4; task.Resumable() != resumable || task.Unfinished() != (resumable || i == 0) {
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
	if _, err := deadletter.Resume(t.Context(), h, task.ID, "ben", deadletter.Report{}); err == nil || !strings.Contains(err.Error(), "edit that again") {
		t.Errorf("resumed: %v", err)
	}
}

// slowImport imports 1,200 messages, 500 a second, and calls do when the first 500 are recorded.
func slowImport(t *testing.T, do func(h *fakeDLQ, id string)) (h *fakeDLQ, task deadletter.Task, err error) {
	t.Helper()
	h = newFakeDLQ(1)
	file := exported(t, h, 1200)
	h.messages = nil
	h.adds = func(context.Context) { <-time.After(time.Second) }
	h.saves = func(now deadletter.Task) {
		if now.Counts.Imported == deadletter.DefaultWindow && now.Status == deadletter.StatusRunning {
			do(h, now.ID)
		}
	}
	task, err = deadletter.Import(t.Context(), h, bytes.NewReader(file), "ann", "a test")
	return h, task, err
}

// An import once ignored requests and reported no progress.
func TestAnImportReportsProgressAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		h, task, err := slowImport(t, func(h *fakeDLQ, id string) {
			asked = true
			if err := deadletter.Cancel(t.Context(), h, id, "ben"); err != nil {
				t.Error(err)
			}
		})
		if err != nil || !asked || task.Status != deadletter.StatusCancelled || task.Ended.IsZero() || len(h.messages) != deadletter.DefaultWindow {
			t.Errorf("it ended as %s, and %d are there: %v", task.Status, len(h.messages), err)
		}
		if was := h.only(t); was.Status != deadletter.StatusCancelled || was.Counts.Imported != deadletter.DefaultWindow {
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
			h.wants[id] = deadletter.PauseRequest // recorded by an older version
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
	h.dies("without", time.Time{})
	h.dies("before", made.Add(-time.Second))
	h.dies("after", made.Add(time.Second))
	h.dies("again", made.Add(-time.Second)) // by a clock that is behind
	h.messages[3].State.Replays, h.messages[3].State.LastFailed = 1, made.Add(time.Second)
	h.tasks = []deadletter.Task{{ID: "t", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused, Created: made, Window: 10, MaxReplays: 3}}
	task, err := deadletter.Resume(t.Context(), h, "t", "ben", deadletter.Report{})
	if err != nil || task.Status != deadletter.StatusDone || strings.Join(h.back, " ") != "without before" {
		t.Errorf("the replay ended as %s, and %v were sent: %v", task.Status, h.back, err)
	}
}

// A replay that was resumed with another DLQ configuration once replayed messages that another group had handled, and
// sent the others to a place that is not read.
func TestATaskContinuesOnlyIfItsDLQIsOpenedTheSameWay(t *testing.T) {
	const retry, group = "orders-retry", "billing-retry"
	for name, c := range map[string]struct {
		kind         deadletter.Kind
		back, readBy string // the configuration of the resume
		older        bool
		want         []string // parts of the error
	}{
		"the same":                          {kind: deadletter.KindReplay, back: retry, readBy: group},
		"no ReadBy":                         {kind: deadletter.KindReplay, back: retry, want: []string{`ReadBy (--read-by) "billing-retry"`, `opened with ""`, `ReplayTo "orders-retry"`}},
		"another ReplayTo":                  {kind: deadletter.KindReplay, back: "orders", readBy: group, want: []string{`ReplayTo (--replay-to) "orders-retry"`, `opened with "orders"`}},
		"a purge, no ReadBy":                {kind: deadletter.KindPurge, back: retry, want: []string{"--read-by"}},
		"a purge, which has no destination": {kind: deadletter.KindPurge, back: "orders", readBy: group},
		"a task of an older version":        {kind: deadletter.KindReplay, back: "orders", older: true},
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
			was := h.only(t)
			if err != nil || was.ReplayTo != retry || was.ReadBy != group {
				t.Fatalf("the recorded task is %+v: %v", was, err)
			}
			h.tasks[0].Status = deadletter.StatusPaused
			if c.older {
				h.tasks[0].ReplayTo, h.tasks[0].ReadBy = "", ""
			}
			h.info.ReplayTo, h.info.ReadBy = c.back, c.readBy
			task, err := deadletter.Resume(t.Context(), h, was.ID, "ben", deadletter.Report{})
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
			if h.only(t).Status != deadletter.StatusPaused || h.claimed != nil {
				t.Errorf("the task is %s, and the DLQ is held by %v", h.only(t).Status, h.claimed)
			}
		})
	}
}
