package sqs

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// setRetention changes the retention of a queue, as an administrator does.
func (b *bubble) setRetention(queue, seconds string) {
	b.Set(queue, "MessageRetentionPeriod", seconds)
}

// wantKept checks that SQS has deleted no message at the end of its retention.
func (b *bubble) wantKept() {
	b.Helper()
	if n := len(b.Expired()); n > 0 {
		b.Errorf("%d messages are lost", n)
	}
}

// Waits may be longer than the retention of a standard queue, however they come: each copy waits for less.
func TestWaitsBeyondTheRetention(t *testing.T) {
	for name, wait := range map[string]func() error{
		"RetryAfter": func() error { return redeliver.RetryAfter(errHandler, 40*time.Minute) },
		"Pause":      func() error { return redeliver.Pause(errHandler, 40*time.Minute) },
	} {
		for _, retention := range []string{"60", "300", "900", "901"} {
			t.Run(name+" of "+retention, func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					b.Create("orders", "MessageRetentionPeriod", retention)
					failed := false
					c := b.start("one", "orders", Config{Policy: steps(2, time.Second)}, func(redeliver.State, *message.Message) error {
						if failed {
							return nil
						}
						failed = true
						return wait()
					})
					b.advance(time.Second)
					b.put("orders", "a", "v", "", nil)
					b.advance(45 * time.Minute)
					b.close(c)
					if runs := b.ran("a"); len(runs) != 2 || runs[1].at < 40*time.Minute || runs[1].at > 41*time.Minute {
						b.Errorf("it ran %v", runs)
					}
					b.wantKept()
				})
			})
		}
	}
}

// A delayed publish may wait for longer than the retention, also one that was lowered after the first publish.
func TestDelayedPublishBeyondTheRetention(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MessageRetentionPeriod", "86400")
		publisher := b.client(b.T, Config{}).Publisher()
		publish := func(id string) {
			msg := message.NewMessage(id, []byte("v"))
			delay.Message(msg, delay.For(20*time.Minute))
			if err := publisher.Publish("orders", msg); err != nil {
				b.Error(err)
			}
		}
		publish("a")
		b.advance(time.Hour)
		b.Remove("orders")
		b.setRetention("orders", "300")
		publish("b")
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(30 * time.Minute)
		b.close(c)
		b.wantRuns("b", 80*time.Minute)
		b.wantKept()
	})
}

// A message without room for redeliver's state waits with SQS's own delay, which the retention bounds.
func TestDelayedPublishWithoutRoomForItsState(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MessageRetentionPeriod", "300", "MaximumMessageSize", "1024")
		msg := message.NewMessage("a", []byte(strings.Repeat("x", 900)))
		delay.Message(msg, delay.For(10*time.Minute))
		if err := b.client(b.T, Config{}).Publisher().Publish("orders", msg); err == nil || !strings.Contains(err.Error(), "2m30s") {
			b.Errorf("it was published, and would be lost: %v", err)
		}
	})
}

// The retention is read again while a subscription runs. The event says what is wrong.
func TestRetentionIsLoweredLater(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MessageRetentionPeriod", "345600")
		c := b.start("one", "orders", Config{Policy: steps(1, 12*time.Minute)}, failHandler)
		b.advance(time.Second)
		b.setRetention("orders", "300")
		b.advance(6 * time.Minute)
		b.put("orders", "a", "v", "", nil)
		b.advance(30 * time.Minute)
		b.close(c)
		if runs := b.ran("a"); len(runs) != 2 || len(b.Messages("orders-dlq")) != 1 {
			b.Errorf("it ran %v, %d are in the DLQ", runs, len(b.Messages("orders-dlq")))
		}
		b.wantKept()
		unfit := 0
		for _, e := range eventsOf[redeliver.SubscriptionChanged](b) {
			if e.Change == redeliver.ChangeTopicUnfit && strings.Contains(e.Err.Error(), "queue orders") && strings.Contains(e.Err.Error(), "5m0s") {
				unfit++
			}
		}
		if unfit != 1 {
			b.Errorf("%d events say that the retention is too short", unfit)
		}
	})
}

// In a FIFO queue a message keeps its age, so it does not wait beyond its retention: it goes to the DLQ.
func TestFIFORetentionIsLoweredLater(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo", "MessageRetentionPeriod", "345600")
		c := b.start("one", "orders.fifo", Config{Policy: steps(1, time.Second)}, func(redeliver.State, *message.Message) error {
			return redeliver.RetryAfter(errHandler, 2*time.Hour)
		})
		b.advance(time.Second)
		b.setRetention("orders.fifo", "3600")
		b.advance(6 * time.Minute)
		b.put("orders.fifo", "a", "v", "g", nil)
		b.advance(3 * time.Hour)
		b.close(c)
		dead := b.Messages("orders-dlq.fifo")
		if len(dead) != 1 || stateOf(t, dead[0], "orders.fifo").Reason != redeliver.ReasonUnschedulable {
			b.Errorf("dead: %+v", dead)
		}
		b.wantKept()
	})
}
