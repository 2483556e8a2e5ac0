package command_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// shop is a service with a topic or queue and a DLQ on some broker.
type shop struct {
	t                 *testing.T
	url, topic, group string
	dlq               string
	send              func(body string, headers ...string) // name=value
	whose             []string                             // flags that identify the DLQ by its topic
	// known is the group's name in dlq list, and flags are the flags that this needs.
	known string
	flags []string
}

// onEachBroker runs a test with a shop on each broker.
func onEachBroker(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	open := map[string]func(*testing.T) *shop{"Kafka": kafkaShop, "SQS": sqsShop}
	for version, r := range brokers.RequireRabbitMQs(t) {
		open["RabbitMQ "+version] = func(t *testing.T) *shop { return rabbitShop(t, r) }
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func kafkaShop(t *testing.T) *shop {
	t.Helper()
	return kafkaShopAt(t, brokers.RequireKafka(t))
}

func kafkaShopAt(t *testing.T, addrs []string) *shop {
	t.Helper()
	s := &shop{t: t, url: "kafka://" + strings.Join(addrs, ","), topic: name(), group: name()}
	s.dlq, s.whose, s.known = s.topic+"."+s.group+".dlq", []string{"--topic", s.topic, "--group", s.group}, s.group
	cl, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)
	kafkatest.MakeTopic(t, adm, 3, nil, s.topic)
	s.send = func(body string, headers ...string) {
		t.Helper()
		r := &kgo.Record{Topic: s.topic, Key: []byte(body), Value: []byte(body)}
		for _, h := range headers {
			key, value, _ := strings.Cut(h, "=")
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// dialChannel opens a channel of RabbitMQ, on its own connection.
func dialChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func rabbitShop(t *testing.T, broker *brokers.Rabbit) *shop {
	t.Helper()
	s := &shop{t: t, url: broker.URL(), topic: name(), flags: []string{"--management-url", broker.Management()}}
	s.dlq, s.whose, s.known = s.topic+".dlq", []string{"--topic", s.topic}, s.topic
	ch := dialChannel(t, s.url)
	if _, err := ch.QueueDeclare(s.topic, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	s.send = func(body string, headers ...string) {
		t.Helper()
		msg := amqp.Publishing{MessageId: name(), DeliveryMode: amqp.Persistent, Headers: amqp.Table{}, Body: []byte(body)}
		for _, h := range headers {
			key, value, _ := strings.Cut(h, "=")
			msg.Headers[key] = value
		}
		if err := ch.PublishWithContext(t.Context(), "", s.topic, true, false, msg); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func sqsShop(t *testing.T) *shop {
	t.Helper()
	return sqsShopAt(t, brokers.RequireSQS(t))
}

func sqsShopAt(t *testing.T, endpoint string) *shop {
	t.Helper()
	s := &shop{t: t, url: "sqs+" + endpoint, topic: name()}
	s.dlq, s.whose, s.known = s.topic+"-dlq", []string{"--topic", s.topic}, s.topic
	api := sqs.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")},
		func(o *sqs.Options) { o.BaseEndpoint = aws.String(endpoint) })
	queue, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(s.topic)})
	if err != nil {
		t.Fatal(err)
	}
	s.send = func(body string, headers ...string) {
		t.Helper()
		msg := &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: aws.String(body), MessageAttributes: make(map[string]types.MessageAttributeValue)}
		for _, h := range headers {
			key, value, _ := strings.Cut(h, "=")
			msg.MessageAttributes[key] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
		}
		if _, err := api.SendMessage(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
