//go:build prove

package pika_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
)

// An invalid publish is refused, and the connection stays open.
func TestAnInvalidPublishClosesNoConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		got := make(chan string, 10)
		b.copiesNothing = true
		b.handler = func(msg *message.Message) error {
			got <- msg.UUID
			return nil
		}
		b.start(b.config(policy))
		for name, metadata := range map[string]message.Metadata{
			"a name that is too long": {strings.Repeat("k", 256): "v"},
			"too large":               {"large": strings.Repeat("x", 131_040)},
			"too large for a level":   {"large": strings.Repeat("x", 128_000), delay.DelayedForKey: "1s"},
			"a delayed publish with a name that is too long": {strings.Repeat("k", 256): "v", delay.DelayedForKey: "1s"},
		} {
			msg := message.NewMessage("m", nil)
			msg.Metadata = metadata
			if err := b.client.Publisher().Publish(b.queue, msg); err == nil || !strings.Contains(err.Error(), "message m for "+b.queue+": ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := b.client.Publisher().Publish(strings.Repeat("k", 256), message.NewMessage("m", nil)); err == nil {
			t.Error("a publish to a topic of 256 bytes succeeded")
		}
		msg := message.NewMessage("largest", nil)
		msg.Metadata.Set("large", strings.Repeat("x", 130_950))
		if err := b.client.Publisher().Publish(b.queue, msg); err != nil {
			t.Error(err)
		}
		if id := <-got; id != "largest" {
			t.Errorf("got %s", id)
		}
		b.checkNoFaults()
	})
}

// copying marshals messages with CC and BCC.
type copying struct {
	amqp.DefaultMarshaler
	headers amqp091.Table
	userID  string
}

func (c copying) Marshal(topic string, msg *message.Message) (amqp091.Publishing, error) {
	p, err := c.DefaultMarshaler.Marshal(topic, msg)
	maps.Copy(p.Headers, c.headers)
	p.UserId = c.userID
	return p, err
}

// A delayed publish sends its copies when it is due, and only then.
func TestCopiesOfADelayedPublish(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.handler = func(*message.Message) error { return nil }
		b.declare(b.queue+".cc", nil)
		b.declare(b.queue+".bcc", nil)
		cfg := b.config(policy)
		cfg.Marshaler = copying{userID: "guest", headers: amqp091.Table{"CC": []any{b.queue + ".cc"}, "BCC": []any{b.queue + ".bcc"}}}
		b.start(cfg)
		msg := message.NewMessage("m", []byte("x"))
		delay.Message(msg, delay.For(700*time.Millisecond))
		begin := time.Now()
		if err := b.client.Publisher().Publish(b.queue, msg); err != nil {
			t.Fatal(err)
		}
		b.wantMessages(b.queue+".cc", 0)
		b.wantMessages(b.queue+".bcc", 0)
		for _, queue := range []string{b.queue + ".cc", b.queue + ".bcc", b.queue + ".seen"} {
			got := b.peer.Take(t, queue, 1)[0]
			if waited := time.Since(begin); waited < 700*time.Millisecond {
				t.Errorf("%s has the message after %v", queue, waited)
			}
			if string(got.Body) != "x" {
				t.Errorf("%s has %q", queue, got.Body)
			}
		}
		b.wantMessages(b.queue+".cc", 0)
		b.wantMessages(b.queue+".bcc", 0)
		b.checkNoFaults()
	})
}

// Another user's id would be refused repeatedly when the message is due. So it is refused when it is published.
func TestADelayedPublishOfAnotherUser(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		cfg := b.config(policy)
		cfg.Marshaler = copying{userID: "somebody"}
		b.start(cfg)
		msg := message.NewMessage("m", []byte("x"))
		delay.Message(msg, delay.For(time.Second))
		if err := b.client.Publisher().Publish(b.queue, msg); err == nil || !strings.Contains(err.Error(), "user") {
			t.Errorf("the error is: %v", err)
		}
	})
}
