//go:build prove

package amqp_test

import (
	"errors"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A quarantine once reported that it had marked all messages, and a replay sent those beyond the bound.
func TestAQuarantineFailsAboveTheNumberOfMarks(t *testing.T) {
	t.Parallel()
	d := newFailingService(t, brokers.RequireRabbitMQ(t), nil)
	d.fillByBroker(amqp091.Table{})
	all := ids(deadletter.MaxMarks + 600)
	d.declared()
	d.putTo(d.queue+".dlq", all...)
	d.awaitReady(d.queue+".dlq", len(all))
	q, err := d.client.DeadLetters(t.Context(), amqp.DeadLetterConfig{Topic: d.queue})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	var filter deadletter.Filter // all have the same cause
	err = deadletter.Browse(t.Context(), q, deadletter.Filter{}, 1, func(m *deadletter.Message) bool {
		filter.Fingerprints = []string{deadletter.Fingerprint(m)}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	task, err := deadletter.Quarantine(t.Context(), q, deadletter.QuarantineOptions{Who: "ann", Why: "test", Filter: filter})
	if !errors.Is(err, deadletter.ErrStateFull) || task.Status != deadletter.StatusFailed || task.Counts.Quarantined != deadletter.MaxMarks {
		t.Errorf("the task is %s with %+v: %v", task.Status, task.Counts, err)
	}
	was, err := deadletter.Lookup(t.Context(), q, task.ID)
	if err != nil || was.Status != deadletter.StatusFailed || was.Counts.Quarantined != deadletter.MaxMarks {
		t.Errorf("the recorded task is %+v: %v", was, err)
	}
	plan, err := deadletter.DryRun(t.Context(), q, deadletter.ReplayOptions{})
	if err != nil || plan.Scanned != int64(len(all)) || plan.Quarantine != deadletter.MaxMarks {
		t.Errorf("a replay would skip %d of %d messages: %v", plan.Quarantine, plan.Scanned, err)
	}
}
