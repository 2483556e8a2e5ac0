package deadletter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestAQuarantineMarksAndRemovesNothing(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		orders := c.Handle("orders", func(*message.Message) error { return errors.New("card declined") })
		for _, id := range []string{"a", "b", "c"} {
			b.Publish("orders", message.NewMessage(id, nil))
			orders.Outcome(id)
		}
		q := orders.DeadLetterQueue()
		i := deadletter.QuarantineOptions{Who: "ann", Why: "OPS-17", Filter: deadletter.Filter{IDs: []string{"a", "b"}}, Window: 1}
		task, err := deadletter.Quarantine(t.Context(), q, i)
		if err != nil || task.Status != deadletter.StatusDone || task.Counts.Quarantined != 2 || task.Counts.Matched != 2 {
			t.Errorf("%+v: %v", task, err)
		}
		marked := make(map[string]bool)
		if err := deadletter.Browse(t.Context(), q, deadletter.Filter{}, 0, func(m *deadletter.Message) bool {
			marked[m.ID] = m.Mark == deadletter.Quarantined
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(marked) != 3 || !marked["a"] || !marked["b"] || marked["c"] {
			t.Errorf("marked are %v", marked)
		}
		rest, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"})
		if err != nil || rest.Counts.Replayed != 1 {
			t.Errorf("a replay sent %d messages, want the one without a mark: %v", rest.Counts.Replayed, err)
		}
	})
}

// An interrupted quarantine can be resumed, as a replay can.
func TestAQuarantineIsResumed(t *testing.T) {
	h := newFakeDLQ(4)
	i := deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{IDs: h.ids()[:3]}, Window: 1}
	i.Report.Progress = func(now deadletter.Task) {
		if now.Counts.Quarantined == 1 {
			h.requests[now.ID] = deadletter.PauseRequest
		}
	}
	task, err := deadletter.Quarantine(t.Context(), h, i)
	if err == nil && task.Status == deadletter.StatusPaused {
		task, err = deadletter.Resume(t.Context(), h, task.ID, "ben", deadletter.Report{})
	}
	if err != nil || task.Status != deadletter.StatusDone || task.Counts.Quarantined < 3 || len(h.messages) != 4 || len(h.sent) > 0 {
		t.Errorf("%+v, %d messages remain, sent were %v: %v", task, len(h.messages), h.sent, err)
	}
}

func TestInvalidQuarantinesAreRefused(t *testing.T) {
	h := newFakeDLQ(1)
	_, err := deadletter.Quarantine(t.Context(), h, deadletter.QuarantineOptions{Window: -1})
	for _, field := range []string{"Who", "Why", "Window", "Filter"} {
		if err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s is not in the error: %v", field, err)
		}
	}
	if len(h.tasks) > 0 || h.claimed != nil {
		t.Error("the quarantine began nevertheless")
	}
}
