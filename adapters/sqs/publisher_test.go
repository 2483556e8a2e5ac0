package sqs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// Of several published messages, one cannot be prepared, and SQS refuses another within a successful answer. Publish
// names both and writes the others. In a FIFO queue it writes nothing behind the refused message of its group.
func TestPublishNamesFailedMessages(t *testing.T) {
	for queue, written := range map[string]int{"orders": 23, "orders.fifo": 2} {
		inBubble(t, func(b *bubble) {
			b.Create(queue)
			c := b.client(b.T, Config{})
			b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
				return &sqsfake.Fault{Entry: func(e map[string]any) string {
					if e["MessageBody"] == "v3" {
						return "InternalError"
					}
					return ""
				}}
			})
			var msgs []*message.Message
			for i := range 25 {
				msgs = append(msgs, message.NewMessage(fmt.Sprint("m", i), fmt.Append(nil, "v", i)))
			}
			msgs[1].Payload = make([]byte, 2<<20)
			err := c.Publisher().Publish(queue, msgs...)
			text := fmt.Sprint(err)
			if n := strings.Count(text, " of 25: "); n != 25-written {
				b.Errorf("%s: the error names %d messages, want %d: %v", queue, n, 25-written, err)
			}
			for _, want := range []string{"message 2 of 25: sqs: message m1 for " + queue, "message 4 of 25: sqs: sending to " + queue, "InternalError"} {
				if !strings.Contains(text, want) {
					b.Errorf("%s: the error lacks %q: %v", queue, want, err)
				}
			}
			if n := len(b.Messages(queue)); n != written {
				b.Errorf("%s has %d messages, want %d", queue, n, written)
			}
			b.close(c)
		})
	}
}
