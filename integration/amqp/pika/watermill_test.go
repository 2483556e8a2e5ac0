//go:build prove

package pika_test

import (
	"context"
	"maps"
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// run is what a handler got of a message.
type run struct {
	uuid, id, payload, exchange, key string
	metadata                         message.Metadata
	attempt                          int
}

// redeliver reads messages of watermill-amqp, the same at every attempt, and watermill-amqp reads redeliver's, on
// queues and exchanges that either has declared.
func TestRedeliverAndWatermillAMQPReadEachOther(t *testing.T) {
	for name, setUp := range map[string]func(url, topic string) (wamqp.Config, amqp.Topology){
		"queue": func(url, _ string) (wamqp.Config, amqp.Topology) {
			return wamqp.NewDurableQueueConfig(url), amqp.Queue()
		},
		"pubsub": func(url, _ string) (wamqp.Config, amqp.Topology) {
			return wamqp.NewDurablePubSubConfig(url, wamqp.GenerateQueueNameTopicNameWithSuffix("group")), amqp.PubSub("group")
		},
		"topic": func(url, topic string) (wamqp.Config, amqp.Topology) {
			return wamqp.NewDurableTopicConfig(url, topic+".exchange", topic+".queue"), amqp.TopicExchange(topic+".exchange", topic+".queue")
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *fixture) {
				theirs, topology := setUp(b.rabbit.URL(), b.queue)
				ctx, cancel := context.WithTimeout(context.Background(), fidelity.MaxWait)
				defer cancel()
				sub, err := wamqp.NewSubscriber(theirs, watermill.NopLogger{})
				if err != nil {
					t.Fatal(err)
				}
				defer sub.Close()
				if err := sub.SubscribeInitialize(b.queue); err != nil {
					t.Fatal(err)
				}
				pub, err := wamqp.NewPublisher(theirs, watermill.NopLogger{})
				if err != nil {
					t.Fatal(err)
				}
				defer pub.Close()
				metadata := message.Metadata{"correlation_id": "c-1", "gruß": "é\n", "empty": ""}

				got := make(chan run, 10)
				b.handler = func(msg *message.Message) error {
					st, _ := redeliver.FromContext(msg.Context())
					d := amqp.DeliveryFromContext(msg.Context())
					got <- run{msg.UUID, st.ID, string(msg.Payload), d.Exchange, d.RoutingKey, maps.Clone(msg.Metadata), st.Attempt()}
					return fidelity.ErrDeclined
				}
				cfg := b.config(policy)
				cfg.Topology = topology
				stop := b.start(cfg)
				out := message.NewMessage(watermill.NewUUID(), []byte("payload"))
				out.Metadata = maps.Clone(metadata)
				if err := pub.Publish(b.queue, out); err != nil {
					t.Fatal(err)
				}
				want := run{out.UUID, out.UUID, "payload", theirs.Exchange.GenerateName(b.queue), theirs.Publish.GenerateRoutingKey(b.queue), metadata, 0}
				for want.attempt = 1; want.attempt <= 3; want.attempt++ {
					if r := fidelity.Within(t, got); !reflect.DeepEqual(r, want) {
						t.Errorf("a message of watermill-amqp: %+v, want %+v", r, want)
					}
				}
				// The same for a message of redeliver.
				if err := b.client.Publisher().Publish(b.queue, out.Copy()); err != nil {
					t.Fatal(err)
				}
				want.attempt = 1
				if r := fidelity.Within(t, got); !reflect.DeepEqual(r, want) {
					t.Errorf("a message of redeliver: %+v, want %+v", r, want)
				}
				b.peer.Take(t, theirs.Queue.GenerateName(b.queue)+".dlq", 2)
				stop() // it would compete for the next message

				again, err := amqp.Open(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close(ctx)
				back := message.NewMessage(watermill.NewUUID(), []byte("answer"))
				back.Metadata = maps.Clone(metadata)
				if err := again.Publisher().Publish(b.queue, back); err != nil {
					t.Fatal(err)
				}
				in, err := sub.Subscribe(ctx, b.queue)
				if err != nil {
					t.Fatal(err)
				}
				msg := fidelity.Within(t, in)
				msg.Ack()
				if msg.UUID != back.UUID || string(msg.Payload) != "answer" || !maps.Equal(msg.Metadata, metadata) {
					t.Errorf("watermill-amqp got %s %q %v", msg.UUID, msg.Payload, msg.Metadata)
				}
			})
		})
	}
}
