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
)

// Watermill's own suite on standard queues, unabridged in make prove, and on FIFO queues with one message group.
// It skips tests of what SQS does not promise: a queue has no consumer groups, a standard queue no order, and no
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
					// Fewer than the 1,000 receives that SQS's own limit allows at most.
					Policy:    redeliver.Policy{MaxRetries: 900, Backoff: redeliver.Fixed(time.Second)},
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
				// A FIFO queue is one group here, of which ElasticMQ hands out ten messages at a time: 10,000 of them, and
				// fifty consumers, kept it busy for minutes.
				ForceShort: end == ".fifo" || !brokers.Proving,
			}, func(t *testing.T) (message.Publisher, message.Subscriber) {
				return pubsub(t, "")
			}, pubsub)
		})
	}
}

// visibility is that of the kit, but for the one test that has 5,000 messages in hand until the last of its fifty subscribers
// is there. Each heartbeat has ElasticMQ sort all messages of a queue where a receive waits: when it was that late with 12 s,
// it did nothing else for minutes. That test loses no message that would have to come back.
func visibility(t *testing.T) time.Duration {
	t.Helper()
	if strings.Contains(t.Name(), "/TestConcurrentSubscribe/") {
		return 10 * time.Minute
	}
	return hidden
}

// suffixPublisher is a publisher for topics that are the beginnings of queues' names: the suite puts more behind those that it is
// given, and a FIFO queue's must end as it does.
type suffixPublisher struct {
	*sqs.Publisher
	end string
}

func (e suffixPublisher) Publish(topic string, messages ...*message.Message) error {
	return e.Publisher.Publish(topic+e.end, messages...)
}

// suffixSubscriber is the same for a subscriber.
type suffixSubscriber struct {
	*sqs.Subscriber
	end string
}

func (e suffixSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return e.Subscriber.Subscribe(ctx, topic+e.end)
}

func (e suffixSubscriber) SubscribeInitialize(topic string) error {
	return e.Subscriber.SubscribeInitialize(topic + e.end)
}

// anyAWS is a client's configuration for servers that take any credentials.
func anyAWS() *aws.Config {
	return &aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient: awshttp.WholeBodies{Next: &http.Client{Transport: connections}},
	}
}
