package sqs

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// makeAllVisible ends the visibility timeout of a queue's messages.
func (b *bubble) makeAllVisible(queue string) {
	b.Edit(queue, func(m *sqsfake.Message) {
		m.Visible = time.Now()
	})
}

// A message that comes again while it is being deleted does not run again. SQS reports success for a deletion with the
// old receipt, which has no effect. Other servers report that the receipt is invalid.
func TestMessageThatComesAgainDuringItsDeletion(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint(strict), func(t *testing.T) {
			inBubbleWith(t, sqsfake.Options{StrictReceipts: strict}, func(b *bubble) {
				b.Create("orders")
				var shown atomic.Bool
				b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Action != "DeleteMessageBatch" || shown.Swap(true) {
						return nil
					}
					b.makeAllVisible("orders")
					return &sqsfake.Fault{Delay: time.Second}
				})
				c := b.start("one", "orders", Config{}, succeed)
				b.put("orders", "a", "v", "", nil)
				b.advance(5 * time.Minute)
				b.wantRunsOnce("a")
				if n := len(b.Messages("orders")); n != 0 {
					b.Errorf("%d are left", n)
				}
				b.close(c)
			})
		})
	}
}

// A message comes again during a heartbeat, which fails because its receipt is old. The new receipt is valid, so the
// handler's context does not end.
func TestMessageThatComesAgainDuringAHeartbeat(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		var shown atomic.Bool
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action != "ChangeMessageVisibilityBatch" || shown.Swap(true) {
				return nil
			}
			b.makeAllVisible("orders")
			return &sqsfake.Fault{Delay: time.Second}
		})
		c := b.start("one", "orders", Config{}, func(_ redeliver.State, msg *message.Message) error {
			select {
			case <-msg.Context().Done():
				b.Errorf("the context ended: %v", context.Cause(msg.Context()))
			case <-time.After(2 * time.Minute):
			}
			return nil
		})
		b.put("orders", "a", "v", "", nil)
		b.advance(5 * time.Minute)
		b.wantRunsOnce("a")
		if !shown.Load() || len(b.Messages("orders")) != 0 {
			b.Errorf("%d messages remain; received again: %t", len(b.Messages("orders")), shown.Load())
		}
		b.close(c)
	})
}
