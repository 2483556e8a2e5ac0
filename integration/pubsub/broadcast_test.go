package pubsub_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/onlooker"
	"github.com/redeliver/redeliver/middleware"
)

// A subscriber of Redis Streams without a group: every process gets every message,
// and what fails there, there goes on.
func TestBroadcastOnRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(onlooker.Redis(brokers.RequireRedis(t)))
	t.Cleanup(func() { _ = client.Close() }) // its publisher closes it, too
	topic := unique("prices")
	pub := must[*redisstream.Publisher](t)(redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{}))
	t.Cleanup(func() { _ = client.Del(context.Background(), topic).Err() })
	over := make(chan string, 20)
	for _, shop := range []string{"bonn", "kiel"} {
		own := redis.NewClient(onlooker.Redis(brokers.RequireRedis(t)))
		sub := must[*redisstream.Subscriber](t)(redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: own, FanOutOldestId: "0", BlockTime: 100 * time.Millisecond,
		}, watermill.NopLogger{}))
		sink := redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.Committed:
				over <- shop + " " + e.State.ID
			case redeliver.BroadcastFailed:
				over <- shop + " " + e.State.ID + " " + string(e.State.Reason)
			}
		})
		b := must[*pubsub.Broadcast](t)(pubsub.OpenBroadcast(pubsub.BroadcastConfig{
			Subscriber: sub, Sink: sink, Policy: redeliver.Policy{Timeout: time.Second},
		}))
		router := must[*message.Router](t)(message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{}))
		router.AddMiddleware(middleware.Retry(middleware.AllowBroadcast))
		router.AddConsumerHandler("h", topic, b, func(msg *message.Message) error {
			switch {
			case shop == "kiel" && msg.UUID == "tea":
				return redeliver.Permanent(errDeclined)
			case shop == "kiel" && msg.UUID == "milk":
				<-msg.Context().Done()
			}
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := router.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			cancel()
			ended.Wait()
			if err := errors.Join(b.Close(), sub.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, ware := range []string{"coffee", "tea", "milk", "salt"} {
		if err := pub.Publish(topic, message.NewMessage(ware, nil)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	deadline := time.After(patience)
	for len(got) < 8 {
		select {
		case what := <-over:
			got = append(got, what)
		case <-deadline:
			t.Fatalf("only %q within %s", got, patience)
		}
	}
	slices.Sort(got)
	want := []string{"bonn coffee", "bonn milk", "bonn salt", "bonn tea", "kiel coffee", "kiel milk timeout", "kiel salt", "kiel tea permanent"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
