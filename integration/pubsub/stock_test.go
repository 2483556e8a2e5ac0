// Package pubsub_test runs adapters/pubsub on Watermill's own Pub/Subs for Kafka, RabbitMQ and SQS, and checks the
// statements of docs/reference/watermill-pubsubs.md about them.
package pubsub_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

const maxWait = time.Minute

var errDeclined = errors.New("card declined")

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func unique(name string) string { return name + "-" + strings.ToLower(rand.Text()[:8]) }

func config(pub message.Publisher, sub message.Subscriber, group string) pubsub.Config {
	return pubsub.Config{
		Publisher: pub, Subscriber: sub, Group: group, Confirms: true, MaxUnacked: pubsub.NoLimit, MaxInFlight: 2,
		Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Fixed(200 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond}},
	}
}

func onKafka(t *testing.T, initial int64) pubsub.Config {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	producing := kafka.DefaultSaramaSyncPublisherConfig()
	producing.Producer.RequiredAcks = sarama.WaitForAll
	pub := must[*kafka.Publisher](t)(kafka.NewPublisher(kafka.PublisherConfig{Brokers: addrs, OverwriteSaramaConfig: producing}, watermill.NopLogger{}))
	t.Cleanup(func() { _ = pub.Close() })
	consuming := kafka.DefaultSaramaSubscriberConfig()
	consuming.Consumer.Offsets.Initial = initial
	consuming.Admin.Timeout = maxWait // 3 s by default, and a topic that takes longer is an error
	group := unique("stock")
	sub := must[*kafka.Subscriber](t)(kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: addrs, ConsumerGroup: group, OverwriteSaramaConfig: consuming,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1},
	}, watermill.NopLogger{}))
	t.Cleanup(func() { _ = sub.Close() })
	return config(pub, sub, group)
}

func onRabbitMQ(t *testing.T) pubsub.Config {
	t.Helper()
	queues := wamqp.NewDurableQueueConfig(brokers.RequireRabbitMQ(t).URL())
	queues.Publish.ConfirmDelivery = true
	pub := must[*wamqp.Publisher](t)(wamqp.NewPublisher(queues, watermill.NopLogger{}))
	t.Cleanup(func() { _ = pub.Close() })
	sub := must[*wamqp.Subscriber](t)(wamqp.NewSubscriber(queues, watermill.NopLogger{}))
	t.Cleanup(func() { _ = sub.Close() })
	cfg := config(pub, sub, "stock")
	cfg.MaxUnacked = 30 * time.Minute // RabbitMQ's consumer_timeout
	return cfg
}

func onSQS(t *testing.T) pubsub.Config {
	t.Helper()
	endpoint := brokers.RequireSQS(t)
	cfg := aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
	there := []func(*awssqs.Options){func(o *awssqs.Options) { o.BaseEndpoint = aws.String(endpoint) }}
	pub := must[*wsqs.Publisher](t)(wsqs.NewPublisher(wsqs.PublisherConfig{AWSConfig: cfg, OptFns: there}, watermill.NopLogger{}))
	sub := must[*wsqs.Subscriber](t)(wsqs.NewSubscriber(wsqs.SubscriberConfig{AWSConfig: cfg, OptFns: there}, watermill.NopLogger{}))
	t.Cleanup(func() { _ = sub.Close() })
	c := config(pub, sub, "stock")
	c.MaxUnacked = 30 * time.Second // the visibility timeout of a queue that says nothing else
	c.Policy.Timeout, c.SendTimeout = 20*time.Second, 5*time.Second
	// The name of a queue must not have dots.
	c.Names = pubsub.Names{
		Retry: func(topic, group string) string { return topic + "_" + group + "_retry" },
		Delay: func(topic, group string, n int) string { return fmt.Sprintf("%s_%s_retry_%d", topic, group, n) },
		DLQ:   func(topic, group string) string { return topic + "_" + group + "_dlq" },
	}
	return c
}

func onRedis(t *testing.T, group string) pubsub.Config {
	t.Helper()
	client := redis.NewClient(brokerstate.Redis(brokers.RequireRedis(t)))
	t.Cleanup(func() { _ = client.Close() })
	pub := must[*redisstream.Publisher](t)(redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{}))
	sub := must[*redisstream.Subscriber](t)(redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{}))
	t.Cleanup(func() { _ = sub.Close() })
	c := config(pub, sub, "stock")
	c.MaxUnacked = redisstream.DefaultMaxIdleTime
	c.Policy.Timeout, c.SendTimeout = 20*time.Second, 10*time.Second
	return c
}

// On each of them a message that fails comes back, and one that always fails goes to the DLQ unchanged.
func TestStockPubSubsRetry(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*testing.T) pubsub.Config{
		"kafka":       func(t *testing.T) pubsub.Config { t.Helper(); return onKafka(t, sarama.OffsetOldest) },
		"amqp":        onRabbitMQ,
		"aws":         onSQS,
		"redisstream": func(t *testing.T) pubsub.Config { t.Helper(); return onRedis(t, "stock") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			retried(t, on(t))
		})
	}
}

func retried(t *testing.T, cfg pubsub.Config) {
	t.Helper()
	topic := unique("orders")
	if init, ok := cfg.Subscriber.(message.SubscribeInitializer); ok {
		if err := init.SubscribeInitialize(topic); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"once", "always"} {
		msg := message.NewMessage(id, []byte(id+"'s payload"))
		msg.Metadata["trace"] = "t-" + id
		if err := cfg.Publisher.Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
	}
	client := must[*mq.Client](t)(pubsub.Open(t.Context(), cfg))
	router := must[*message.Router](t)(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddMiddleware(middleware.Retry())
	var mu sync.Mutex
	runs := make(map[string]int)
	done := make(chan struct{})
	router.AddConsumerHandler("h", topic, client.Subscriber(), func(msg *message.Message) error {
		st, _ := redeliver.FromContext(msg.Context())
		mu.Lock()
		defer mu.Unlock()
		if runs[msg.UUID]++; msg.UUID == "always" || st.Attempts == 0 {
			return errDeclined
		}
		if runs[msg.UUID] == 2 {
			close(done)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		end, cancelEnd := context.WithTimeout(context.Background(), maxWait)
		defer cancelEnd()
		if err := errors.Join(<-ended, client.Close(end)); err != nil {
			t.Error(err)
		}
	})

	dlq := topic + "." + strings.ReplaceAll(cfg.Group, ".", "_2e") + ".dlq"
	if cfg.Names.DLQ != nil {
		dlq = cfg.Names.DLQ(topic, cfg.Group)
	}
	select {
	case <-router.Running(): // the DLQ is made by then
	case err := <-ended:
		ended <- nil
		t.Fatalf("the router ended: %v", err)
	}
	letters := must[<-chan *message.Message](t)(cfg.Subscriber.Subscribe(ctx, dlq))
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	var dead *message.Message
	for dead == nil || done != nil {
		select {
		case dead = <-letters:
			dead.Ack()
		case <-done:
			done = nil
		case <-deadline.C:
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("not within %s: runs %v, dead %v", maxWait, runs, dead)
		}
	}
	var st map[string]string
	if err := json.Unmarshal([]byte(dead.Metadata["redeliver"]), &st); err != nil {
		t.Errorf("the state of the dead letter is %q: %v", dead.Metadata["redeliver"], err)
	}
	if st["reason"] != "exhausted" || st["attempt"] != "3" || st["id"] != "always" {
		t.Errorf("the dead letter says %v", st)
	}
	if dead.UUID != "always" || string(dead.Payload) != "always's payload" || dead.Metadata["trace"] != "t-always" {
		t.Errorf("the dead letter is %s %q %v", dead.UUID, dead.Payload, dead.Metadata)
	}
	mu.Lock()
	defer mu.Unlock()
	if runs["always"] < 3 || runs["once"] < 2 {
		t.Errorf("runs %v, want 3 and 2", runs)
	}
}

// Check accepts the Pub/Subs that keep messages, and says what is wrong with the others.
func TestStockPubSubsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on   func(*testing.T) pubsub.Config
		want string // in the error; empty: none
	}{
		"kafka, oldest": {func(t *testing.T) pubsub.Config { t.Helper(); return onKafka(t, sarama.OffsetOldest) }, ""},
		// By default the group skips messages that were written before it joined, or after its offsets expired.
		"kafka, newest":        {func(t *testing.T) pubsub.Config { t.Helper(); return onKafka(t, sarama.OffsetNewest) }, "OffsetOldest"},
		"amqp":                 {onRabbitMQ, ""},
		"aws":                  {onSQS, ""},
		"redisstream":          {func(t *testing.T) pubsub.Config { t.Helper(); return onRedis(t, "stock") }, ""},
		"redisstream, fan-out": {func(t *testing.T) pubsub.Config { t.Helper(); return onRedis(t, "") }, "before it subscribed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := maxWait
			if strings.Contains(name, "newest") || strings.Contains(name, "fan-out") {
				limit = 15 * time.Second // nothing comes, and that takes as long as one waits
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := pubsub.Check(ctx, c.on(t))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("checked: %v, want %q", err, c.want)
			}
		})
	}
}
