package kafka_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// Members of the publishing group release a delayed publish. While none subscribes to the topic, the message waits
// longer, and is not lost.
func TestADelayedPublishWaitsForAMemberOfItsGroup(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	policy := redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond}}
	billing, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: policy})
	mail, ev2 := openClient(t, kafka.Config{Brokers: addrs, Group: "mail", Policy: policy})
	route(t, mail, "orders", failFirst(0))
	ev2.awaitJoined(t, 1)
	msg := message.NewMessage("a", []byte("a"))
	delay.Message(msg, delay.For(100*time.Millisecond))
	due := time.Now().Add(100 * time.Millisecond)
	if err := billing.Publisher().Publish("orders", msg); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(due) + 200*time.Millisecond) // until it is due
	if n := count(t, addrs, "orders"); n != 0 {
		t.Errorf("%d records on the origin, although no member of billing runs", n)
	}
	if n := count(t, addrs, "orders.billing.retry.100ms"); n != 1 {
		t.Errorf("%d records on the delay topic, want 1", n)
	}
	route(t, billing, "orders", failFirst(0))
	ev.awaitEnds(t, "a")
	ev2.awaitEnds(t, "a")
	if n := count(t, addrs, "orders"); n != 1 {
		t.Errorf("%d records on the origin, want 1", n)
	}
}
