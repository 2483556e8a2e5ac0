package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// stopsInSend stops the fakeDLQ's runner while it sends messages, which takes 3 s.
func stopsInSend(h *fakeDLQ, stop context.CancelFunc) {
	h.onSend = func(context.Context) {
		stop()
		<-time.After(3 * time.Second)
		h.onSend = nil
	}
	h.onAdd = h.onSend
}

// Messages that are being sent when the runner is stopped are recorded, so the next runner does not send them again.
func TestAStoppedReplayFinishesItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newFakeDLQ(30)
		stopsInSend(h, stop)
		task, err := deadletter.Replay(ctx, h, deadletter.ReplayOptions{Who: "ann", Why: "a test", Window: 10})
		if !errors.Is(err, context.Canceled) || task.Status != deadletter.StatusPaused || task.Counts.Replayed != 10 || len(h.messages) != 20 {
			t.Fatalf("the replay ended as %s with %+v, and %d messages remain: %v", task.Status, task.Counts, len(h.messages), err)
		}
		if was := h.onlyTask(t); was.Status != deadletter.StatusPaused || was.Counts.Replayed != 10 || !was.Ended.IsZero() {
			t.Errorf("recorded is %+v", was)
		}
		if task, err = deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ben"}); err != nil || len(h.sent) != 30 || len(h.messages) != 0 {
			t.Errorf("the next runner ended as %s; %d messages were sent and %d remain: %v", task.Status, len(h.sent), len(h.messages), err)
		}
	})
}

// A broker that does not answer blocks a runner for at most maxFinish.
func TestAStoppedReplayDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newFakeDLQ(3)
		h.onSend = func(ctx context.Context) {
			stop()
			<-ctx.Done()
		}
		began := time.Now()
		task, err := deadletter.Replay(ctx, h, deadletter.ReplayOptions{Who: "ann", Why: "a test"})
		if took := time.Since(began); err == nil || took != 10*time.Second || task.Status != deadletter.StatusPaused || task.Counts.Replayed != 0 {
			t.Errorf("it ended as %s after %s: %v", task.Status, took, err)
		}
	})
}

// A read is not interrupted when the runner is stopped: on SQS a message would be hidden for a while although no
// process has it.
func TestAStoppedReplayEndsBetweenTwoMessages(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	h, n := newFakeDLQ(30), 0
	h.onNext = func(ctx context.Context) {
		if n++; n == 5 {
			stop()
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("message %d is read under a context that has ended: %v", n, err)
		}
	}
	task, err := deadletter.Replay(ctx, h, deadletter.ReplayOptions{Who: "ann", Why: "a test", Window: 10})
	if !errors.Is(err, context.Canceled) || task.Status != deadletter.StatusPaused || n != 5 || len(h.sent) != 0 {
		t.Errorf("it ended as %s after %d messages, and %v were sent: %v", task.Status, n, h.sent, err)
	}
}

// testWaitingReplays tests replays that wait long after their first message.
func testWaitingReplays(t *testing.T, test func(*testing.T, deadletter.ReplayOptions)) {
	for name, r := range map[string]deadletter.ReplayOptions{
		"rate":   {Who: "ann", Why: "a test", Rate: 0.01, Window: 1},
		"canary": {Who: "ann", Why: "a test", Canary: []int{1}, Watch: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, r) })
		})
	}
}

// Waits end at once.
func TestAStoppedReplayDoesNotWaitForItsRateOrCanary(t *testing.T) {
	testWaitingReplays(t, func(t *testing.T, r deadletter.ReplayOptions) {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second+time.Millisecond, stop)
		h, began := newFakeDLQ(3), time.Now()
		task, err := deadletter.Replay(ctx, h, r)
		if took := time.Since(began); !errors.Is(err, context.Canceled) || task.Counts.Replayed != 1 || took != 5*time.Second+time.Millisecond {
			t.Errorf("it ended as %s after %s with %+v: %v", task.Status, took, task.Counts, err)
		}
	})
}

// Requests of another process are obeyed within a second also in these waits.
func TestARequestEndsTheWaitForARateOrACanary(t *testing.T) {
	testWaitingReplays(t, func(t *testing.T, r deadletter.ReplayOptions) {
		h, began := newFakeDLQ(3), time.Now()
		r.Report.Progress = func(now deadletter.Task) {
			if now.Counts.Replayed == 1 {
				h.requests[now.ID] = deadletter.RequestPause
			}
		}
		task, err := deadletter.Replay(t.Context(), h, r)
		if took := time.Since(began); err != nil || task.Status != deadletter.StatusPaused || task.Counts.Replayed != 1 || took > time.Second {
			t.Errorf("it ended as %s after %s with %+v: %v", task.Status, took, task.Counts, err)
		}
	})
}

func TestAStoppedEditAndImportFinishTheirWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newFakeDLQ(2)
		stopsInSend(h, stop)
		task, err := deadletter.Edit(ctx, h, deadletter.EditOptions{Who: "ann", Why: "a test", Position: "m-0001", Body: []byte("new")})
		if err != nil || task.Status != deadletter.StatusDone || len(h.messages) != 1 || len(h.sent) != 1 {
			t.Errorf("the edit ended as %s, %v remain and %v were sent: %v", task.Status, h.ids(), h.sent, err)
		}

		ctx, stop = context.WithCancel(t.Context())
		h = newFakeDLQ(1)
		file := exported(t, h, 600)
		h.messages = nil
		stopsInSend(h, stop)
		task, err = deadletter.Import(ctx, h, bytes.NewReader(file), deadletter.ImportOptions{Who: "ann", Why: "a test"})
		if !errors.Is(err, context.Canceled) || task.Status != deadletter.StatusFailed || task.Counts.Imported != deadletter.DefaultWindow || len(h.messages) != deadletter.DefaultWindow {
			t.Errorf("the import ended as %s with %+v, and the DLQ has %d messages: %v", task.Status, task.Counts, len(h.messages), err)
		}
	})
}

// A session that could not be opened is not closed.
func TestAScanThatCannotBeOpenedEndsTheTask(t *testing.T) {
	h := newFakeDLQ(1)
	h.claimScanErr = errors.New("not authorized")
	task, err := deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{Who: "ann", Why: "a test"})
	if !errors.Is(err, h.claimScanErr) || task.Status != deadletter.StatusFailed || h.claimed != nil {
		t.Errorf("it ended as %s: %v", task.Status, err)
	}
	h.claimScanErr = nil
	if task, err = deadletter.Resume(t.Context(), h, task.ID, deadletter.ResumeOptions{Who: "ann"}); err != nil || len(h.sent) != 1 || h.closed != 1 {
		t.Errorf("it ended as %s, %v were sent and %d scans closed: %v", task.Status, h.sent, h.closed, err)
	}
}

// exported returns the export of a fakeDLQ's first message, n times.
func exported(t *testing.T, h *fakeDLQ, n int) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := deadletter.Export(t.Context(), h, deadletter.Filter{IDs: h.ids()[:1]}, &file); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(file.Bytes(), n)
}
