package sqs

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// A queue cannot be used for a second after it was created, as AWS documents. A start that creates queues waits for
// them, and so do a publish and the state of a DLQ.
func TestANewQueueIsNotThereAtOnce(t *testing.T) {
	for name, use := range map[string]func(b *bubble) error{
		"consume": func(b *bubble) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return Consume(ctx, b.config(Config{Sink: b}), []string{"orders"}, func(context.Context, types.Message) error { return nil })
		},
		"publish": func(b *bubble) error {
			return b.client(b.T, Config{}).Publisher().Publish("orders", message.NewMessage("a", []byte("v")))
		},
		"publish to a FIFO queue": func(b *bubble) error {
			return b.client(b.T, Config{}).Publisher().Publish("orders.fifo", message.NewMessage("a", []byte("v")))
		},
		"the state of a DLQ": func(b *bubble) error {
			q := openTestDLQ(b.T, b.fake, "orders", 1, "")
			defer q.Close()
			return q.own.Append(context.Background(), requestFor("one"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, sqsfake.Options{CreateLatency: time.Second}, func(b *bubble) {
				if err := use(b); err != nil {
					b.Error(err)
				}
				if failed := eventsOf[redeliver.SubscriptionChanged](b); name == "consume" {
					for _, e := range failed {
						if e.Err != nil {
							b.Errorf("an event says %+v", e)
						}
					}
				}
			})
		})
	}
}
