package sqs

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

// A message that the DLQ refuses goes there in parts, so it does not keep its slot or block its group in a FIFO queue.
func TestMessageThatTheDLQRefusesGoesInParts(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.create(queue)
				group := map[bool]string{true: "g"}[api.IsFIFO(queue)]
				cfg := Config{Policy: steps(1, 2*time.Second), MaxInFlight: 1, MaxRetriesInFlight: 1, StateKeys: [][]byte{[]byte("sixteen bytes...")}}
				c := b.start("one", queue, cfg, func(st redeliver.State, _ *message.Message) error {
					if st.ID == "large" {
						return fmt.Errorf("%w: %s", errHandler, strings.Repeat("long ", 200))
					}
					return nil
				})
				dlq := strings.Replace(queue, "orders", "orders-dlq", 1)
				b.fake.mu.Lock()
				b.queues[dlq].attributes["MaximumMessageSize"] = "2048" // changed since the start
				b.fake.mu.Unlock()
				body := strings.Repeat("bödy", 1500)
				b.put(queue, "large", body, group, map[string]any{"mine": map[string]any{"DataType": "String", "StringValue": "1"}})
				b.put(queue, "neighbour", "v", group, nil)
				b.advance(time.Minute)
				if len(b.ran("neighbour")) != 1 || len(b.messagesIn(queue)) != 0 {
					t.Errorf("ran %v, %d messages remain", b.ran(""), len(b.messagesIn(queue)))
				}
				b.close(c)
				joined, parts := "", b.messagesIn(dlq)
				for i, m := range parts {
					st := m.state(t, queue)
					want := fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256([]byte(body)))
					if st.Truncated != want || st.Reason != redeliver.ReasonUnschedulable || st.ID != "large" || m.attributes["mine"] == nil {
						t.Errorf("part %d has %v and the state %+v, want the message's attributes, and %s", i, m.attributes, st, want)
					}
					joined += m.body
				}
				if joined != body {
					t.Errorf("%d parts have %d bytes together, want the %d of the body", len(parts), len(joined), len(body))
				}
			})
		})
	}
}

// A message with an attribute that SQS refuses in every copy goes to the DLQ without its attributes.
func TestAMessageWhoseAttributeIsRefusedBlocksNoOther(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.create("orders")
		c := b.start("one", "orders", Config{Policy: steps(1, 2*time.Second)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "refused" {
				b.fake.mu.Lock()
				defer b.fake.mu.Unlock()
				b.fake.refuses = "mine" // the server that the message came from accepted it
				return errHandler
			}
			return nil
		})
		b.put("orders", "refused", "body", "", map[string]any{"mine": map[string]any{"DataType": "Number", "StringValue": "abc"}})
		b.advance(time.Minute)
		b.put("orders", "neighbour", "v", "", nil)
		b.advance(time.Minute)
		if len(b.ran("neighbour")) != 1 || len(b.messagesIn("orders")) != 0 {
			t.Errorf("ran %v, %d messages remain", b.ran(""), len(b.messagesIn("orders")))
		}
		b.close(c)
		dead := b.messagesIn("orders-dlq")
		if len(dead) != 1 || dead[0].body != "body" || dead[0].attributes["mine"] != nil {
			t.Fatalf("in the DLQ: %v", dead)
		}
		if st := dead[0].state(t, "orders"); st.ID != "refused" || st.Truncated == "" || st.Reason != redeliver.ReasonUnschedulable {
			t.Errorf("its state is %+v", st)
		}
	})
}
