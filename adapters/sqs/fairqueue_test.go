package sqs

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// On a standard queue GroupID names the tenant of a fair queue, unless SQS would refuse it. A delayed publish keeps it.
func TestAFairQueueGetsItsTenant(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.create("orders")
		c := b.client(t, Config{GroupID: func(_ string, msg *message.Message) string { return msg.Metadata.Get("tenant") }})
		for id, tenant := range map[string]string{"a": "acme", "b": "two words", "c": ""} {
			msg := message.NewMessage(id, message.Payload("v"))
			msg.Metadata.Set("tenant", tenant)
			later := msg.Copy()
			delay.Message(later, delay.For(time.Hour))
			if err := c.Publisher().Publish("orders", msg, later); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		want := map[string]any{"acme": "acme", "two words": nil, "": nil}
		for _, m := range b.messagesIn("orders") {
			tenant := ""
			if a, ok := m.attributes["tenant"].(map[string]any); ok {
				tenant, _ = a["StringValue"].(string)
			}
			if m.system["MessageGroupId"] != want[tenant] {
				t.Errorf("the message of tenant %q has the group %v", tenant, m.system["MessageGroupId"])
			}
		}
		b.close(c)
	})
}
