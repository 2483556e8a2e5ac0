//go:build prove

package amqp_test

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/methodproxy"
)

// A broker refuses every ack and takes all writes. Copies and runs have a bound: they once multiplied from queue to queue.
// When the broker accepts acks again, all messages end.
func TestRefusedAcksLeaveFewCopies(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	for name, refusal := range map[string]methodproxy.Fault{
		"denied":     {Err: &amqp091.Error{Code: amqp091.AccessRefused, Reason: "ACCESS_REFUSED - access to queue refused for user 'guest'"}},
		"failed":     {Err: &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: "PRECONDITION_FAILED - unknown delivery tag"}},
		"connection": {Err: &amqp091.Error{Code: amqp091.InternalError, Reason: "INTERNAL_ERROR"}, Connection: true},
	} {
		for _, order := range []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderBlocking} {
			t.Run(name+", "+order.String(), func(t *testing.T) {
				t.Parallel()
				testRefusedAcks(t, r, refusal, order)
			})
		}
	}
}

func testRefusedAcks(t *testing.T, r *brokers.Rabbit, refusal methodproxy.Fault, order redeliver.Order) {
	t.Helper()
	// Of each message that a queue has when the refusals begin, two channels may write a copy. Later, a queue delivers one
	// message before each pause of 1, 2, 4, 8 and 16 s, and then of 30 s.
	const messages, inMinute, places = 5, 8, 4
	run := newDeniedRun(t, r, func(l *fixture) { l.cfg.Policy.Order = order })
	if err := run.start(); err != nil {
		t.Fatal(err)
	}
	run.awaitChange("consuming", 1)
	refused, writes := 0, 0
	allow := run.proxy.Inject(func(o methodproxy.Operation, _ []byte) *methodproxy.Fault {
		run.mu.Lock()
		defer run.mu.Unlock()
		switch o.Method {
		case "basic.ack":
			refused++
			return &refusal
		case "basic.publish":
			writes++
		}
		return nil
	})
	for i := range messages {
		run.put = append(run.put, "fails"+string(rune('a'+i)), "fine"+string(rune('a'+i)))
	}
	run.publishMessages(run.put...)
	<-time.After(time.Minute)
	run.mu.Lock()
	t.Logf("report: %d acks were refused, %d copies were written, and %d messages ran", refused, writes, len(run.runs))
	if maxWrites := len(run.put)*2*places + places*inMinute; writes > maxWrites {
		t.Errorf("%d copies of %d messages were written in the first minute, want at most %d", writes, len(run.put), maxWrites)
	}
	refused, writes = 0, 0
	run.mu.Unlock()
	<-time.After(time.Minute)
	run.mu.Lock()
	// Two messages in a minute are read of each queue.
	if refused == 0 || refused > 3*places || writes > 3*places {
		t.Errorf("%d acks were refused and %d copies written in the second minute, want at most %d", refused, writes, 3*places)
	}
	if refusal.Err.Code == amqp091.AccessRefused && !run.isReportedLocked(operation{Method: "basic.ack", Place: run.queue}) {
		t.Error("no event names the acks of the queue")
	}
	run.mu.Unlock()
	allow()
	run.within("it is ready", func() {}, func() bool { return len(run.troublesLocked()) == 0 })
	run.awaitAll()
	for _, suffix := range []string{"", ".retry"} {
		run.awaitReady(run.queue+suffix, 0)
	}
}
