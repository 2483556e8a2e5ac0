package sqs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Of messages that are published together, one is not taken, and SQS says so within a success. Publish tells, and has
// written the others; on a FIFO queue nothing that comes behind the request.
func TestPublishTellsWhatIsNotTaken(t *testing.T) {
	for queue, written := range map[string]int{"orders": 24, "orders.fifo": 9} {
		inBubble(t, func(b *bubble) {
			b.create(queue)
			c := b.client(b.T, Config{})
			b.failingEntries(func(_, _ string, e map[string]any) string {
				if e["MessageBody"] == "v3" {
					return "InternalError"
				}
				return ""
			})
			var msgs []*message.Message
			for i := range 25 {
				msgs = append(msgs, message.NewMessage(fmt.Sprint("m", i), fmt.Append(nil, "v", i)))
			}
			err := c.Publisher().Publish(queue, msgs...)
			if err == nil || strings.Count(err.Error(), "InternalError") != 1 || !strings.Contains(err.Error(), queue) {
				b.Errorf("%s: published: %v", queue, err)
			}
			if n := len(b.in(queue)); n != written {
				b.Errorf("%s has %d messages, want %d", queue, n, written)
			}
			b.close(c)
		})
	}
}
