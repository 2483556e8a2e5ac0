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
		b.Create("orders")
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
		want := map[string]string{"acme": "acme"}
		for _, m := range b.Messages("orders") {
			tenant := string(m.Attributes["tenant"].Value)
			if m.Group != want[tenant] {
				t.Errorf("the message of tenant %q has the group %q", tenant, m.Group)
			}
		}
		b.close(c)
	})
}
