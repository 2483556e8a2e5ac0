package publish_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/publish"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// written keeps what is published to it.
type written struct {
	all []*message.Message
	err error
}

func (b *written) Publish(_ string, messages ...*message.Message) error {
	b.all = append(b.all, messages...)
	return b.err
}

// Close implements [message.Publisher].
func (b *written) Close() error { return nil }

// Each broker gets what it has a place for.
func TestABrokerGetsWhatItHasAPlaceFor(t *testing.T) {
	t.Parallel()
	m := publish.Message{
		Topic: "orders.fifo", ID: "order-1", Key: []byte("k"), ContentType: "text/plain", Headers: map[string]string{"tenant": "acme"},
		Attributes: map[string]string{"id": "e", "source": "/shop", "type": "ordered"}, Body: []byte("body"),
	}
	event := func(prefix string, more map[string]string) map[string]string {
		all := map[string]string{"tenant": "acme", prefix + "id": "e", prefix + "source": "/shop", prefix + "type": "ordered"}
		maps.Copy(all, more)
		return all
	}
	for broker, want := range map[brokerurl.Broker]map[string]string{
		brokerurl.Kafka:    event("ce_", map[string]string{"content-type": "text/plain"}),
		brokerurl.SQS:      event("ce_", map[string]string{"content-type": "text/plain"}),
		brokerurl.RabbitMQ: event("cloudEvents:", nil),
	} {
		own := m
		if broker == brokerurl.RabbitMQ {
			own.Key = nil
		}
		b := &written{}
		if id, err := (publish.Target{Broker: broker, Publisher: b}).Publish(&own); err != nil || id != "order-1" {
			t.Fatalf("%s: %q, %v", broker, id, err)
		}
		got := b.all[0]
		if !maps.Equal(got.Metadata, want) || got.UUID != "order-1" || string(got.Payload) != "body" {
			t.Errorf("%s: %v", broker, got)
		}
		p, err := publish.RabbitMQ{}.Marshal("orders", got)
		if err != nil {
			t.Fatal(err)
		}
		if broker == brokerurl.RabbitMQ && (p.ContentType != "text/plain" || p.MessageId != "order-1" || p.Headers["cloudEvents:type"] != "ordered") {
			t.Errorf("RabbitMQ gets %+v", p)
		}
		if group := publish.MessageGroup("orders.fifo", got); broker == brokerurl.SQS && group != "k" {
			t.Errorf("the message group is %q", group)
		}
	}
	plain := message.NewMessage("a", nil)
	if fifo, standard := publish.MessageGroup("https://sqs/1/orders.fifo", plain), publish.MessageGroup("orders", plain); fifo != "orders.fifo" || standard != "" {
		t.Errorf("without a key the message groups are %q and %q", fifo, standard)
	}
}

// A message that a broker would change or lose is refused, and nothing is written.
func TestAMessageThatTheBrokerCannotHave(t *testing.T) {
	t.Parallel()
	many := make(map[string]string)
	for name := range strings.SplitSeq("a b c d e f g h", " ") {
		many[name] = "x"
	}
	for _, c := range []struct {
		broker brokerurl.Broker
		m      publish.Message
		says   string
	}{
		{brokerurl.RabbitMQ, publish.Message{Key: []byte("k")}, "a RabbitMQ message has no key"},
		{brokerurl.RabbitMQ, publish.Message{Null: true}, "a Kafka record without a body"},
		{brokerurl.RabbitMQ, publish.Message{Headers: map[string]string{strings.Repeat("x", 256): ""}}, "longer than 255 bytes"},
		{brokerurl.Kafka, publish.Message{Null: true, Body: []byte("x")}, "a Kafka record without a body"},
		{brokerurl.Kafka, publish.Message{Headers: map[string]string{"": "x"}}, "no name"},
		{brokerurl.Kafka, publish.Message{Headers: map[string]string{"_watermill_delayed_for": "1s"}}, "one of redeliver's"},
		{brokerurl.Kafka, publish.Message{Delay: 1}, "a delay needs the group"},
		{brokerurl.Kafka, publish.Message{Attributes: map[string]string{"id": "1", "source": "x", "type": "y", "bad-name": "z"}}, "lower-case letters"},
		{brokerurl.SQS, publish.Message{}, "text that is not empty"},
		{brokerurl.SQS, publish.Message{Body: []byte("\xff")}, "text that is not empty"},
		{brokerurl.SQS, publish.Message{Body: []byte("x"), Headers: many}, "SQS has room for 7"},
		{brokerurl.SQS, publish.Message{Body: []byte("x"), Headers: map[string]string{"a b": "x"}}, "SQS takes names"},
		{brokerurl.SQS, publish.Message{Body: []byte("x"), Headers: map[string]string{"a": ""}}, "values that are not empty"},
	} {
		b := &written{}
		_, err := publish.Target{Broker: c.broker, Publisher: b}.Publish(&c.m)
		if _, ok := errors.AsType[*publish.InvalidError](err); !ok || !strings.Contains(err.Error(), c.says) || len(b.all) > 0 {
			t.Errorf("%s, %+v: %v, and %d are written", c.broker, c.m, err, len(b.all))
		}
	}
	refused := errors.New("no broker")
	m := publish.Message{}
	if _, err := (publish.Target{Broker: brokerurl.Kafka, Publisher: &written{err: refused}}).Publish(&m); !errors.Is(err, refused) || m.ID == "" {
		t.Errorf("a refusal is %v, of message %q", err, m.ID)
	}
}
