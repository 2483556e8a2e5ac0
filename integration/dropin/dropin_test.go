// Package dropin_test tests the wrappers for handlers of the drop-in calls on each broker.
package dropin_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/middleware"
)

// sent has the bodies in the order in which they are sent: stream a out of order, and one message twice.
var sent = []string{"a/2", "a/1", "a/3", "a/1"}

// A handler behind DedupFor and ResequenceFor handles each message once, in the order of its stream.
func TestHandlersOfDropInsAreDeduplicatedAndInOrder(t *testing.T) {
	t.Parallel()
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		addrs := brokers.RequireKafka(t)
		topic := "dropin-" + strings.ToLower(rand.Text()[:8])
		cfg := sarama.NewConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		cfg.Producer.Return.Successes = true
		client, err := sarama.NewClient(addrs, cfg)
		must(t, err)
		defer client.Close()
		admin, err := sarama.NewClusterAdmin(addrs, cfg)
		must(t, err)
		defer admin.Close()
		must(t, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
		producer, err := sarama.NewSyncProducer(addrs, cfg)
		must(t, err)
		defer producer.Close()
		for _, body := range sent {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(body)})
			must(t, err)
		}
		handleAll(t, func(m *sarama.ConsumerMessage) string { return string(m.Value) }, fails[*sarama.ConsumerMessage],
			func(ctx context.Context, sink redeliver.Sink, h func(context.Context, *sarama.ConsumerMessage) error) error {
				return kafka.Consume(ctx, client, kafka.Config{Group: topic, Sink: sink}, []string{topic}, h)
			})
	})
	t.Run("RabbitMQ", func(t *testing.T) {
		t.Parallel()
		url := brokers.RequireRabbitMQ(t).URL()
		queue := "dropin-" + strings.ToLower(rand.Text()[:8])
		conn, err := amqp091.Dial(url)
		must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(t, err)
		_, err = ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum})
		must(t, err)
		must(t, ch.Confirm(false))
		for _, body := range sent {
			done, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{Body: []byte(body), DeliveryMode: amqp091.Persistent})
			must(t, err)
			done.Wait()
		}
		nacks := func(d amqp091.Delivery) error { return d.Nack(false, true) }
		handleAll(t, func(d amqp091.Delivery) string { return string(d.Body) }, nacks,
			func(ctx context.Context, sink redeliver.Sink, h func(context.Context, amqp091.Delivery) error) error {
				return amqp.Consume(ctx, amqp.Config{URLs: []string{url}, Sink: sink}, []string{queue}, h)
			})
	})
	t.Run("SQS", func(t *testing.T) {
		t.Parallel()
		endpoint := brokers.RequireSQS(t)
		cfg := aws.Config{Region: "elasticmq", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
		api := awssqs.NewFromConfig(cfg, func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
		queue := "dropin-" + strings.ToLower(rand.Text()[:8])
		made, err := api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &queue})
		must(t, err)
		for _, body := range sent {
			_, err := api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: &body})
			must(t, err)
		}
		handleAll(t, func(m types.Message) string { return aws.ToString(m.Body) }, fails[types.Message],
			func(ctx context.Context, sink redeliver.Sink, h func(context.Context, types.Message) error) error {
				return sqs.Consume(ctx, sqs.Config{AWS: &cfg, Endpoint: endpoint, Sink: sink}, []string{queue}, h)
			})
	})
}

var errHandler = errors.New("no answer")

func fails[M any](M) error { return errHandler }

// handleAll consumes until all that was sent is committed, and checks what the handler got. The first attempt at a/3 is declined.
func handleAll[M any](t *testing.T, body func(M) string, decline func(M) error, consume func(context.Context, redeliver.Sink, func(context.Context, M) error) error) {
	t.Helper()
	var mu sync.Mutex
	var handled, skipped []string
	declined := false
	dedup, err := middleware.DedupFor(middleware.DedupConfigOf[M]{ID: body, Skipped: func(m M) {
		mu.Lock()
		defer mu.Unlock()
		skipped = append(skipped, body(m))
	}})
	must(t, err)
	resequence, err := middleware.ResequenceFor(middleware.ResequenceConfigOf[M]{
		Settle: time.Minute, Wait: time.Minute,
		Sequence: func(m M) (string, uint64, bool) {
			stream, number, _ := strings.Cut(body(m), "/")
			n, err := strconv.ParseUint(number, 10, 64)
			return stream, n, err == nil
		},
	})
	must(t, err)
	committed := make(chan struct{}, 100)
	sink := redeliver.SinkFunc(func(e redeliver.Event) {
		if _, ok := e.(redeliver.Committed); ok {
			committed <- struct{}{}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- consume(ctx, sink, dedup(resequence(func(_ context.Context, m M) error {
			mu.Lock()
			defer mu.Unlock()
			if body(m) == "a/3" && !declined {
				declined = true
				return decline(m)
			}
			handled = append(handled, body(m))
			return nil
		})))
	}()
	late := time.After(2 * time.Minute)
	for n := range sent {
		select {
		case <-committed:
		case err := <-ended:
			t.Fatalf("Consume ended: %v", err)
		case <-late:
			t.Fatalf("%d of %d messages were committed", n, len(sent))
		}
	}
	cancel()
	must(t, <-ended)
	if want := []string{"a/1", "a/2", "a/3"}; !slices.Equal(handled, want) || !slices.Equal(skipped, []string{"a/1"}) {
		t.Errorf("handled %q, want %q; skipped %q, want a/1", handled, want, skipped)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
