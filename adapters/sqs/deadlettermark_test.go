package sqs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// Runners remove the mark of a deleted message two weeks after one of them has read the whole DLQ without finding it.
func TestMarkOfADeletedMessageIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		q := openTestDLQ(t, f, "orders", 5, "")
		defer q.Close()
		if task, err := quarantineAll(t, q); err != nil || task.Counts.Quarantined != 5 {
			t.Fatalf("%+v: %v", task, err)
		}
		marks := func() int {
			t.Helper()
			return len(markedPositions(t, q))
		}
		all := f.queues["orders-dlq"]
		all.messages = all.messages[:3] // another program deletes two
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 5}, {13 * 24 * time.Hour, 5}, {24 * time.Hour, 3}} {
			time.Sleep(step.after) //nolint:forbidigo // virtual time: days pass
			task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"})
			if err != nil || task.Counts.Replayed != 0 {
				t.Fatalf("%+v: %v", task, err)
			}
			if n := marks(); n != step.want {
				t.Errorf("%s later there are %d marks, want %d", step.after, n, step.want)
			}
		}
	})
}
