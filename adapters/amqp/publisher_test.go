package amqp

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// meetingMarshaler returns from Marshal when two calls run at once.
type meetingMarshaler struct {
	DefaultMarshaler

	meet chan struct{}
}

var errMet = errors.New("two run at once")

func (m meetingMarshaler) Marshal(string, *message.Message) (amqp091.Publishing, error) {
	select {
	case m.meet <- struct{}{}:
	case <-m.meet:
	case <-time.After(time.Minute):
		return amqp091.Publishing{}, errors.New("it runs alone")
	}
	return amqp091.Publishing{}, errMet
}

// A level that takes no messages must not keep the other messages of a Publish from their queue.
func TestPublishDoesNotWaitForDelayedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Marshaler: meetingMarshaler{meet: make(chan struct{})}, SendTimeout: time.Hour}.withDefaults()
		unused := link.New(link.Options{})
		p := &client{cfg: cfg, published: link.NewSender(unused), forwarded: link.NewSender(unused)}
		delayed := message.NewMessage("delayed", nil)
		delay.Message(delayed, delay.For(time.Second))
		if err := p.Publish("orders", delayed, message.NewMessage("now", nil)); !errors.Is(err, errMet) {
			t.Errorf("publishing returns %v", err)
		}
	})
}
