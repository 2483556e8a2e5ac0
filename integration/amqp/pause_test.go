package amqp_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// In a pause the processes return their prefetched messages. No process gets a message that another one returns, not
// even a process that starts meanwhile, so no count of deliveries grows by more than one. A blocking queue keeps its
// order.
func TestAPauseReturnsMessagesOnce(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]redeliver.Order{"unordered": redeliver.OrderNone, "blocking": redeliver.OrderBlocking} {
		for version, r := range brokers.RequireRabbitMQs(t) {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				l := newFixture(t, r, func(l *fixture) {
					l.cfg.MaxInFlight, l.cfg.Prefetch, l.cfg.Policy.Order = 5, 10, order
					if order == redeliver.OrderBlocking {
						l.cfg.Policy.Levels = nil
					}
				})
				l.testPause(order)
			})
		}
	}
}

func (l *fixture) testPause(order redeliver.Order) {
	const n, processes = 30, 3
	goOn := make(chan struct{})
	var ran []string
	handle := func(msg *message.Message, _ run) error {
		l.update(func() { ran = append(ran, msg.UUID) })
		<-goOn
		return nil
	}
	all := []*mq.Client{l.client}
	l.consume(handle)
	for range processes - 1 {
		l.open()
		l.consume(handle)
		all = append(all, l.client)
	}
	l.publishMessages(ids(n)...)
	run := 5 * processes
	if order == redeliver.OrderBlocking {
		run = 1
	}
	l.await("messages that run", func() bool { return len(ran) == run })
	if err := all[0].Operations().Pause(l.Context(), l.queue, "the bank is closed"); err != nil {
		l.Fatal(err)
	}
	if err := all[1].Operations().Pause(l.Context(), l.queue, "it is still closed"); err != nil {
		l.Fatal(err)
	}
	l.awaitChange("group paused", processes)
	mark, err := all[2].Operations().Paused(l.Context(), l.queue)
	if err != nil || mark == nil || mark.Reason != "it is still closed" {
		l.Errorf("paused as %+v, %v", mark, err)
	}
	if order == redeliver.OrderNone { // an ordered channel ends only when its handler has ended
		l.awaitReady(l.queue, n-run)
	}
	close(goOn)
	l.awaitReady(l.queue, n-run)
	l.open()
	l.consume(handle)
	l.awaitChange("group paused", processes+1)
	if err := l.client.Close(context.Background()); err != nil {
		l.Error(err)
	}
	if got := l.ready(l.queue); got != n-run {
		l.Errorf("%d messages are ready, want %d", got, n-run)
	}
	l.checkDeliveries(n - run)
	if err := all[2].Operations().Resume(l.Context(), l.queue); err != nil {
		l.Fatal(err)
	}
	l.awaitEnds(ids(n))
	l.awaitChange("group resumed", processes)
	if order == redeliver.OrderBlocking && !slices.IsSorted(ran) {
		l.Errorf("ran in the order %v", ran)
	}
	if len(ran) != n {
		l.Errorf("%d runs of %d messages", len(ran), n)
	}
}

// checkDeliveries checks that each of n ready messages was delivered at most once, and returns them in order.
func (l *fixture) checkDeliveries(n int) {
	l.Helper()
	in, err := l.raw.Consume(l.queue, "", false, false, false, false, nil)
	if err != nil {
		l.Fatal(err)
	}
	for range n {
		d := <-in
		if count, _ := d.Headers["x-delivery-count"].(int64); count > 1 {
			l.Errorf("%s was delivered %d times", d.MessageId, count)
		}
	}
	if err := l.raw.Close(); err != nil {
		l.Fatal(err)
	}
	l.redial()
	l.awaitReady(l.queue, n)
}

// A queue that the broker deletes while it has no consumer is not paused, because its messages would be deleted with
// it.
func TestAQueueThatExpiresIsNotPaused(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Topology.QueueArgs = amqp091.Table{"x-expires": int32(3_600_000)}
	})
	l.declared()
	if err := l.client.Operations().Pause(l.Context(), l.queue, "the bank is closed"); err == nil || !strings.Contains(err.Error(), "x-expires") {
		l.Errorf("pausing: %v", err)
	}
	if mark, err := l.client.Operations().Paused(l.Context(), l.queue); mark != nil || err != nil {
		l.Errorf("paused as %+v, %v", mark, err)
	}
}

// Without its marker queue, which only an administrator may create here, the subscription is not paused, and messages
// run.
func TestAPauseNeedsItsMarkerQueueWithNoProvisioning(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	l.delete(".retry.paused")
	l.cfg.NoProvisioning = true
	l.open()
	l.consume(func(*message.Message, run) error { return nil })
	l.publishMessages(ids(3)...)
	l.awaitEnds(ids(3))
	err := l.client.Operations().Pause(l.Context(), l.queue, "the bank is closed")
	if err == nil || !strings.Contains(err.Error(), l.queue+".retry.paused is missing") {
		l.Errorf("pausing without the queue: %v", err)
	}
	if err := l.client.Operations().Resume(l.Context(), l.queue); err != nil {
		l.Errorf("resuming without the queue: %v", err)
	}
	plan, err := l.client.Plan(l.Context(), l.queue)
	if err != nil || !slices.ContainsFunc(plan.Places, func(q mq.Place) bool { return q.Kind == "paused" && !q.Exists }) {
		l.Errorf("the plan does not name the queue: %v", err)
	}
	if n := l.countLocked("commands are not read"); n > 0 {
		l.Errorf("reported %d times that commands are not read", n)
	}
}

// A queue that is deleted in a pause is declared again only when the pause ends. Resume once insisted that it exists.
func TestAPauseOfADeletedQueueEnds(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.consume(func(*message.Message, run) error { return nil })
	if err := l.client.Operations().Pause(l.Context(), l.queue, "the bank is closed"); err != nil {
		l.Fatal(err)
	}
	l.awaitChange("group paused", 1)
	l.delete("")
	if err := l.client.Operations().Resume(l.Context(), l.queue); err != nil {
		l.Fatal(err)
	}
	l.awaitChange("group resumed", 1)
	l.awaitChange("consuming", 2)
	l.publishMessages("after")
	l.awaitEnds([]string{"after"})
	if err := l.client.Operations().Resume(l.Context(), l.queue+"-misspelt"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		l.Errorf("resuming a queue that was never there: %v", err)
	}
}
