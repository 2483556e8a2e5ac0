package sqs

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// In a pause nothing runs or is received. Messages in hand are returned once, so that no count of receives grows. A
// process that starts meanwhile begins nothing. Close does not wait for the end of the pause.
func TestAPausedQueueIsNotReceived(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(queue)
				group := map[bool]string{true: "g"}[api.IsFIFO(queue)]
				release := make(chan struct{})
				handle := func(_ redeliver.State, msg *message.Message) error {
					if msg.UUID == "m0" {
						<-release
					}
					return nil
				}
				client := b.start("one", queue, Config{MaxInFlight: 1}, handle)
				for _, id := range []string{"m0", "m1", "m2"} {
					b.put(queue, id, "v", group, nil)
				}
				b.advance(time.Second)
				if err := client.Operations().Pause(b.Context(), queue, "the bank's #closed"); err != nil {
					b.Fatal(err)
				}
				mark, err := client.Operations().Paused(b.Context(), queue)
				if err != nil || mark == nil || mark.Reason != "the bank_s _closed" || !strings.Contains(mark.By, "@") || !mark.At.Equal(time.Now().Truncate(time.Second)) {
					b.Errorf("paused as %+v, %v", mark, err)
				}
				b.advance(3 * engine.PausePollInterval)
				close(release)
				b.advance(time.Minute)
				received := b.Count("ReceiveMessage")
				defer b.close(b.start("two", queue, Config{}, handle))
				b.advance(6 * time.Hour)
				if n := b.Count("ReceiveMessage") - received; n > 0 {
					b.Errorf("%d receives in the pause", n)
				}
				if n := len(b.ran("")); n != 1 {
					b.Errorf("%d messages ran, want only the running one", n)
				}
				for _, m := range b.Messages(queue) {
					if m.Receives > 1 || m.Visible.After(time.Now()) {
						b.Errorf("%s: %d receives, visible at %s", m.ID, m.Receives, m.Visible)
					}
				}
				if took := <-b.timedClose(client); took > time.Second {
					b.Errorf("closing took %s", took)
				}
				other := b.client(b.T, Config{})
				defer b.close(other)
				if err := other.Operations().Resume(b.Context(), queue); err != nil {
					b.Fatal(err)
				}
				b.advance(2 * engine.PausePollInterval)
				if n := len(b.ran("")); n != 3 {
					b.Errorf("%d messages ran, want 3", n)
				}
				if mark, err := other.Operations().Paused(b.Context(), queue); mark != nil || err != nil {
					b.Errorf("paused as %+v, %v", mark, err)
				}
			})
		})
	}
}

// Without the right to read tags messages run, and that is reported once. For a queue of another account nothing is
// reported, because only its owner may read its tags.
func TestWithoutTheRightToReadTagsMessagesRun(t *testing.T) {
	for topic, want := range map[string]int{"orders": 1, "arn:aws:sqs:eu-west-1:1:orders": 0} {
		t.Run(topic, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Action == "ListQueueTags" {
						return sqsfake.Denied()
					}
					return nil
				})
				defer b.close(b.start("one", topic, Config{}, succeed))
				b.put("orders", "m0", "v", "", nil)
				b.advance(time.Minute)
				b.mu.Lock()
				reports := 0
				for _, e := range b.events {
					if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeCommandsNotRead {
						reports++
					}
				}
				b.mu.Unlock()
				if n := len(b.ran("")); n != 1 || reports != want {
					b.Errorf("%d messages ran, reported %d times", n, reports)
				}
			})
		})
	}
}
