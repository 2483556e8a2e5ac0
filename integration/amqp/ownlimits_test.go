package amqp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// A policy for a service's queues may limit redeliver's, too, and redeliver cannot see it without the management API. A full
// DLQ refuses messages. It once dropped dead letters that were confirmed.
func TestAPolicyWithALengthDropsNoDeadLetters(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := b.VirtualHost(t)
			adm := newAdmin(t, r)
			l := newFixture(t, r, nil)
			adm.policy(t, "short", "^"+l.queue, map[string]any{"max-length": 3})
			l.consume(func(*message.Message, run) error { return redeliver.Permanent(errHandler) })
			const n = 12
			for _, id := range ids(n) { // the origin drops messages, too, if they come faster
				l.publishMessages(id)
				l.await("run", func() bool { return len(l.runs[id]) > 0 || l.countLocked("intake paused") > 0 })
				l.mu.Lock()
				full := l.countLocked("intake paused") > 0
				l.mu.Unlock()
				if full {
					break
				}
			}
			l.awaitChange("intake paused", 1)
			l.mu.Lock()
			ran, dead := len(l.runs), len(l.dead)
			l.mu.Unlock()
			if ready := l.ready(l.queue + ".dlq"); ready < dead {
				t.Errorf("%d dead letters are reported, and %d are in the DLQ", dead, ready)
			}
			adm.delete(t, "policies", r.VHost(), "short")
			l.await("dead letters", func() bool {
				ran = len(l.runs) // the broker may deliver more while the intake pauses
				return len(l.dead) >= ran
			})
			l.awaitReady(l.queue+".dlq", ran)
		})
	}
}

// Queues that an older version declared, without arguments that only protect, are used as they are.
func TestOlderQueuesAreAccepted(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := b.VirtualHost(t)
			for _, url := range []string{"", r.Management()} {
				l := newFixture(t, r, func(l *fixture) { l.cfg.Policy.Order, l.cfg.ManagementURL = redeliver.OrderBlocking, url })
				older := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(1<<31 - 1)}
				for _, suffix := range []string{".dlq", ".dlq.state"} {
					l.declare(l.queue+suffix, older)
				}
				l.consume(func(*message.Message, run) error { return redeliver.Permanent(errHandler) })
				l.publishMessages("dead")
				l.awaitEnds([]string{"dead"})
				q, err := l.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: l.queue})
				if err != nil {
					t.Fatal(err)
				}
				if task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "me", Why: "test", Everything: true, Expect: 1}); err != nil || task.Counts.Purged != 1 {
					t.Errorf("the purge ended with %+v, %v", task.Counts, err)
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Nobody consumes from a level of more than a minute. A policy with expires deletes it, with its messages, which is
// reported.
func TestALevelThatExpiresIsReported(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t).VirtualHost(t)
	l := newFixture(t, r, func(l *fixture) { l.cfg.Policy = steps(1, 10*time.Minute) })
	newAdmin(t, r).policy(t, "idle", `^.*\.retry\.10m$`, map[string]any{"expires": 2000})
	l.consume(func(*message.Message, run) error { return errHandler })
	l.publishMessages("lost")
	level := l.queue + ".retry.10m"
	l.await("run", func() bool { return len(l.runs["lost"]) > 0 })
	adm := newAdmin(t, r)
	await := func(there bool) {
		t.Helper()
		for deadline := time.Now().Add(maxWait); slices.Contains(adm.queues(t, l.queue), level) != there; waitFor(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("there is a level: %t", !there)
			}
		}
	}
	await(false)
	adm.delete(t, "policies", r.VHost(), "idle")
	l.publishMessages("waits")
	l.await("report", func() bool {
		return slices.ContainsFunc(l.events, func(e redeliver.Event) bool {
			c, ok := e.(redeliver.SubscriptionChanged)
			return ok && c.Change == redeliver.ChangeTopicMissing && strings.Contains(c.Err.Error(), level)
		})
	})
	await(true)
	l.awaitReady(level, 1)
}
