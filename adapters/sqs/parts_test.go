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
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// A message that the DLQ refuses goes there in parts, so it does not keep its slot or block its group in a FIFO queue.
func TestMessageThatTheDLQRefusesGoesInParts(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(queue)
				group := map[bool]string{true: "g"}[api.IsFIFO(queue)]
				cfg := Config{Policy: steps(1, 2*time.Second), MaxInFlight: 1, MaxRetriesInFlight: 1, StateKeys: [][]byte{[]byte("sixteen bytes...")}}
				c := b.start("one", queue, cfg, func(st redeliver.State, _ *message.Message) error {
					if st.ID == "large" {
						return fmt.Errorf("%w: %s", errHandler, strings.Repeat("long ", 200))
					}
					return nil
				})
				dlq := strings.Replace(queue, "orders", "orders-dlq", 1)
				b.Set(dlq, "MaximumMessageSize", "2048") // changed since the start
				body := strings.Repeat("bödy", 1500)
				b.put(queue, "large", body, group, map[string]sqsfake.Attribute{"mine": sqsfake.String("1")})
				b.put(queue, "neighbour", "v", group, nil)
				b.advance(time.Minute)
				if len(b.ran("neighbour")) != 1 || len(b.Messages(queue)) != 0 {
					t.Errorf("ran %v, %d messages remain", b.ran(""), len(b.Messages(queue)))
				}
				b.close(c)
				joined, parts := "", b.Messages(dlq)
				for i, m := range parts {
					st := stateOf(t, m, queue)
					want := fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256([]byte(body)))
					if st.Truncated != want || st.Reason != redeliver.ReasonUnschedulable || st.ID != "large" || string(m.Attributes["mine"].Value) != "1" {
						t.Errorf("part %d has %v and the state %+v, want the message's attributes, and %s", i, m.Attributes, st, want)
					}
					joined += m.Body
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
		b.Create("orders")
		c := b.start("one", "orders", Config{Policy: steps(1, 2*time.Second)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "refused" {
				b.setFault(func(*sqsfake.Call) *sqsfake.Fault { // the server that the message came from accepted it
					return sqsfake.FailedEntries("InvalidParameterValue", func(e map[string]any) bool {
						attributes, _ := e["MessageAttributes"].(map[string]any)
						return attributes["mine"] != nil
					})
				})
				return errHandler
			}
			return nil
		})
		b.put("orders", "refused", "body", "", map[string]sqsfake.Attribute{"mine": sqsfake.String("abc")})
		b.advance(time.Minute)
		b.put("orders", "neighbour", "v", "", nil)
		b.advance(time.Minute)
		if len(b.ran("neighbour")) != 1 || len(b.Messages("orders")) != 0 {
			t.Errorf("ran %v, %d messages remain", b.ran(""), len(b.Messages("orders")))
		}
		b.close(c)
		dead := b.Messages("orders-dlq")
		if len(dead) != 1 || dead[0].Body != "body" || len(dead[0].Attributes["mine"].Value) > 0 {
			t.Fatalf("in the DLQ: %v", dead)
		}
		if st := stateOf(t, dead[0], "orders"); st.ID != "refused" || st.Truncated == "" || st.Reason != redeliver.ReasonUnschedulable {
			t.Errorf("its state is %+v", st)
		}
	})
}
