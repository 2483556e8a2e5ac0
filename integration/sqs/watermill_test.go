package sqs_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/awshttp"
	"github.com/redeliver/redeliver/mq"
)

// Watermill's own suite runs on standard queues, in full length in make prove, and on FIFO queues with one message
// group. It skips tests of what SQS does not promise: a queue has no consumer groups, a standard queue no order, and no
// queue delivers exactly once.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	for name, end := range map[string]string{"standard": "", "fifo": ".fifo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			t.Cleanup(func() {
				t.Logf("report: Watermill's suite on ElasticMQ, %s: %.1f s", name, time.Since(begin).Seconds())
			})
			pubsub := func(t *testing.T, _ string) (message.Publisher, message.Subscriber) {
				client, err := sqs.Open(context.Background(), sqs.Config{
					AWS: anyAWS(), Endpoint: endpoint, VisibilityTimeout: visibility(t), WaitTime: time.Second,
					// Fewer than the 1,000 receives of SQS's own limit.
					Policy:    redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 900, Backoff: redeliver.Fixed(time.Second)},
					NackDelay: time.Millisecond, DrainTimeout: 2 * time.Second, // longer than a receive
					Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := client.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
				return suffixPublisher{client.Publisher(), end}, suffixSubscriber{client.Subscriber(), end}
			}
			tests.TestPubSub(t, tests.Features{
				ConsumerGroups: false, ExactlyOnceDelivery: false, Persistent: true,
				GuaranteedOrder: end == ".fifo", GuaranteedOrderWithSingleSubscriber: end == ".fifo",
				// A FIFO queue is one group here, of which ElasticMQ delivers ten messages at a time. 10,000 of them
				// and fifty consumers kept it busy for minutes.
				ForceShort: end == ".fifo" || !brokers.Proving,
			}, func(t *testing.T) (message.Publisher, message.Subscriber) {
				return pubsub(t, "")
			}, pubsub)
		})
	}
}

// visibility returns the kit's visibility timeout, except for the one test that holds 5,000 messages until its last
// subscriber starts. Each heartbeat makes ElasticMQ sort all messages of a queue with a waiting receive. With 12 s
// heartbeats kept it busy for minutes. No message has to come back in that test.
func visibility(t *testing.T) time.Duration {
	t.Helper()
	if strings.Contains(t.Name(), "/TestConcurrentSubscribe/") {
		return 10 * time.Minute
	}
	return hidden
}

// suffixPublisher appends the FIFO suffix to topics, because the suite appends to the names that it gets.
type suffixPublisher struct {
	*mq.Publisher
	end string
}

func (e suffixPublisher) Publish(topic string, messages ...*message.Message) error {
	return e.Publisher.Publish(topic+e.end, messages...)
}

// suffixSubscriber does the same for a subscriber.
type suffixSubscriber struct {
	*mq.Subscriber
	end string
}

func (e suffixSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return e.Subscriber.Subscribe(ctx, topic+e.end)
}

func (e suffixSubscriber) SubscribeInitialize(topic string) error {
	return e.Subscriber.SubscribeInitialize(topic + e.end)
}

// anyAWS returns a client configuration for servers that accept any credentials.
func anyAWS() *aws.Config {
	return &aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient: awshttp.WholeBodies{Next: &http.Client{Transport: connections}},
	}
}
