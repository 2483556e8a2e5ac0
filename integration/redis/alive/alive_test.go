package alive_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/redis/alive"
)

// Redis records the consumer of a message before it sends the message, and the connection may end in between. The
// consumer claims such a message, but not one with a running handler.
func TestAMessageThatNeverReachedItsConsumerComesBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr, stream, consumer := brokers.RequireRedis(t), "alive-"+rand.Text(), rand.Text()
	client, other := redis.NewClient(brokerstate.Redis(addr)), redis.NewClient(brokerstate.Redis(addr))
	defer client.Close()
	defer other.Close()
	defer other.Del(context.Background(), stream)
	if err := alive.Keep(ctx, client, consumer, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: other}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.XGroupCreateMkStream(ctx, stream, "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"lost", "held"} {
		if err := pub.Publish(stream, message.NewMessage(id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	// client never sees this answer, although Redis gave the message to its consumer.
	if err := other.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{stream, ">"}, Count: 1}).Err(); err != nil {
		t.Fatal(err)
	}
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: "g", Consumer: consumer, DisableIndefiniteInitialBlock: true,
		ClaimInterval: 200 * time.Millisecond, MaxIdleTime: time.Second, ShouldClaimPendingMessage: alive.Claimable(client, consumer),
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	came, err := sub.Subscribe(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"held", "lost"} {
		select {
		case msg := <-came:
			if msg.UUID != want {
				t.Fatalf("%s came, want %s", msg.UUID, want)
			}
			if want == "held" { // by a handler that takes longer than maxAnswerTime
				<-time.After(7 * time.Second)
			}
			msg.Ack()
		case <-ctx.Done():
			t.Fatalf("%s did not come", want)
		}
	}
	for ctx.Err() == nil {
		select {
		case msg := <-came:
			t.Fatalf("%s came twice", msg.UUID)
		case <-time.After(10 * time.Millisecond):
		}
		if p, err := other.XPending(ctx, stream, "g").Result(); err == nil && p.Count == 0 {
			return
		}
	}
	t.Error("a message is pending although both were acked")
}
