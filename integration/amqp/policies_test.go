package amqp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/engine"
)

// Two consumers of a queue with different policies both report the difference, and report when the other one has ended.
func TestConsumersWithDifferentPoliciesBothReportIt(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) { l.cfg.ManagementURL = r.Management() })
			l.consume(func(*message.Message, run) error { return nil })
			changes := make(chan redeliver.SubscriptionChanged, 100)
			cfg := l.cfg
			cfg.Policy.MaxRetries++
			cfg.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
				if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangePolicyDiffers {
					changes <- c
				}
			})
			other, err := amqp.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Close(context.Background()) }()
			if _, err := other.Subscriber().Subscribe(t.Context(), l.queue); err != nil {
				t.Fatal(err)
			}
			select {
			case c := <-changes:
				if !errors.Is(c.Err, engine.ErrPolicies) || !strings.Contains(c.Detail, delayqueue.Fingerprint(l.cfg.Policy)) || c.Origin != l.queue {
					t.Errorf("the other consumer reported %+v", c)
				}
			case <-time.After(maxWait):
				t.Error("the other consumer reports nothing")
			}
			l.awaitChange("policies differ", 1)
			if err := other.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.awaitChange("policies agree", 1)
			l.await("one report that policies differ", func() bool { return l.countLocked("policies differ") == 1 })
		})
	}
}

// Only an empty level of a policy that no consumer runs is removed.
func TestOnlyDrainedLevelsAreRemoved(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, r, func(l *fixture) { l.cfg.ManagementURL = r.Management() })
			was := l.cfg
			was.Policy = redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{200 * time.Millisecond, 10 * time.Minute, time.Hour}}
			older, err := amqp.Open(t.Context(), was)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = older.Close(context.Background()) }()
			if _, err := older.Subscriber().Subscribe(t.Context(), l.queue); err != nil {
				t.Fatal(err)
			}
			l.consume(func(*message.Message, run) error { return nil })
			left := []string{l.queue + ".retry.10m", l.queue + ".retry.1h"}
			defer func() { _, _ = l.raw.QueueDelete(left[1], false, false, false) }()
			if err := l.raw.PublishWithContext(t.Context(), "", left[1], false, false, amqp091.Publishing{Body: []byte("waits")}); err != nil {
				t.Fatal(err)
			}
			// the levels that are kept, once the broker has counted
			keeps := func(begin ...string) {
				t.Helper()
				tick, over := time.NewTicker(500*time.Millisecond), time.After(maxWait)
				defer tick.Stop()
				for {
					old, err := l.client.OldLevels(t.Context(), l.queue)
					if err != nil {
						t.Fatal(err)
					}
					if slices.EqualFunc(old, begin, func(o doctor.OldLevel, want string) bool {
						return strings.Contains(o.KeepReason, want) && (want != "" || o.KeepReason == "")
					}) {
						return
					}
					select {
					case <-tick.C:
					case <-over:
						t.Fatalf("%+v, want %q", old, begin)
					}
				}
			}
			keeps("finish the rollout", "1 messages wait on it")
			done, err := l.client.RemoveOldLevels(t.Context(), l.queue, left...)
			if err != nil || len(done) != 2 || done[0].Removed || done[1].Removed {
				t.Fatalf("%v, %+v", err, done)
			}
			if err := older.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			keeps("", "1 messages wait on it")
			done, err = l.client.RemoveOldLevels(t.Context(), l.queue, append(left, l.queue+".retry.200ms", l.queue)...)
			if err != nil || len(done) != 4 || !done[0].Removed || done[1].Removed || done[2].Removed || done[3].Removed {
				t.Fatalf("%v, %+v", err, done)
			}
			keeps("1 messages wait on it")
			without := l.cfg
			without.ManagementURL = ""
			withoutAPI, err := amqp.Open(t.Context(), without)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = withoutAPI.Close(context.Background()) }()
			if _, err := withoutAPI.OldLevels(t.Context(), l.queue); err == nil {
				t.Error("AMQP alone lists queues")
			}
		})
	}
}
