//go:build prove

package examples_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// These tests repeat how earlier versions lost messages or stopped everyone. The worker is a separate process, and the
// tests use the brokers' own clients.

// journal counts the lines of a worker by event.
type journal struct {
	p      *program
	counts map[string]int
	ids    map[string]map[string]bool // ids by event
}

func newJournal(p *program) *journal {
	return &journal{p, make(map[string]int), make(map[string]map[string]bool)}
}

// until reads lines until n different messages have had an event.
func (j *journal) until(event string, n int) {
	j.p.t.Helper()
	for len(j.ids[event]) < n {
		j.readOne()
	}
}

// readOne reads one line.
func (j *journal) readOne() {
	j.p.t.Helper()
	line, ok := j.p.next()
	var l struct {
		Event string `json:"event"`
		ID    string `json:"id"`
	}
	if err := json.Unmarshal([]byte(line), &l); !ok || err != nil {
		j.p.t.Fatalf("the worker wrote %q after %v: %v", line, j.counts, err)
	}
	j.counts[l.Event]++
	if j.ids[l.Event] == nil {
		j.ids[l.Event] = make(map[string]bool)
	}
	j.ids[l.Event][l.ID] = true
}

// A plain quorum queue has the default delivery limit of RabbitMQ 4, and no dead-letter exchange. 35 closed connections
// lose none of 8 messages.
func TestOutsideClosedConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	r := brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ4})
	const n, closes = 8, 35
	queue := newName()
	conn, err := amqp.Dial(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent})
		if err != nil || !c.Wait() {
			t.Fatalf("publishing: %v", err)
		}
	}
	_ = conn.Close() // the test would lose it, too
	j := newJournal(start(t, nil, "worker", "--broker", r.URL(), "--topic", queue, "--work", "5s", "--timeout", "1m"))
	attempts := func() int { return j.counts["attempt"] }
	for range closes {
		for before := attempts(); attempts() == before; { // a message was delivered again
			j.readOne()
		}
		if err := r.CloseAllConnections(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	j.until("commit", n)
	if j.counts["dead_letter"] > 0 {
		t.Errorf("%v", j.counts)
	}
}

// bigTopic is a topic of large records, and a client that compresses.
func bigTopic(t *testing.T, maxBytes string) (*origin, *kgo.Client, *kadm.Client) {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	o := &origin{t: t, broker: "kafka://" + strings.Join(addrs, ","), topic: newName()}
	o.group = o.topic + "-group"
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(o.topic), kgo.UnknownTopicRetries(50), kgo.ProducerBatchMaxBytes(400<<20),
		kgo.BrokerMaxWriteBytes(500<<20), kgo.MaxBufferedBytes(500<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	kafkatest.MakeTopic(t, admin, 1, map[string]*string{"max.message.bytes": &maxBytes}, o.topic)
	return o, client, admin
}

func write(t *testing.T, client *kgo.Client, rule string, n int, value []byte) {
	t.Helper()
	for range n {
		rec := &kgo.Record{Value: value, Headers: []kgo.RecordHeader{{Key: "rule", Value: []byte(rule)}}}
		if err := client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// A failing message of 18 MiB, or one that unpacks to 105 MB, goes to the DLQ beside neighbours that are all handled.
func TestOutsideLargeMessagesDelayNoOther(t *testing.T) {
	t.Parallel()
	random := make([]byte, 18<<20)
	for i, x := 0, uint32(1); i < len(random); i++ { // it does not compress
		x = x*1664525 + 1013904223
		random[i] = byte(x >> 24)
	}
	for name, c := range map[string]struct {
		value      []byte
		maxBytes   string
		neighbours int
	}{
		"18 MiB":            {random, "20971520", 40},
		"unpacks to 105 MB": {make([]byte, 105_000_000), "1048588", 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, client, _ := bigTopic(t, c.maxBytes)
			write(t, client, "never", c.neighbours/2, []byte("v"))
			write(t, client, "always", 1, c.value)
			write(t, client, "never", c.neighbours/2, []byte("v"))
			j := newJournal(o.work("--fail", "header:rule", "--retries", "1", "--backoff", "fixed:1s"))
			j.until("commit", c.neighbours)
			j.until("dead_letter", 1)
		})
	}
}

// After a delay topic was deleted, every message that did not wait there is handled. Later messages can wait on it
// again.
func TestOutsideADeletedDelayTopicStopsNothing(t *testing.T) {
	t.Parallel()
	o, client, admin := bigTopic(t, "1048588")
	j := newJournal(o.work("--fail", "header:rule", "--retries", "3", "--backoff", "fixed:5s"))
	write(t, client, "attempt<2", 1, []byte("v")) // makes the topics
	j.until("commit", 1)
	topics, err := admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, o.topic+".") && strings.HasSuffix(name, "s") && strings.Contains(name, ".retry.") {
			kafkatest.DropTopic(t, admin, name)
			deleted++
		}
	}
	if deleted == 0 {
		t.Fatalf("no delay topic among %v", topics.Names())
	}
	write(t, client, "attempt<2", 40, []byte("v"))
	write(t, client, "never", 35, []byte("v"))
	j.until("commit", 76)
}

// Retention of the largest number is unlimited.
func TestOutsideTheLargestRetention(t *testing.T) {
	t.Parallel()
	o, client, admin := bigTopic(t, "1048588")
	forever := "9223372036854775807"
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &forever}}, o.topic); err != nil {
		t.Fatal(err)
	}
	write(t, client, "attempt<2", 5, []byte("v"))
	newJournal(o.work("--fail", "header:rule", "--backoff", "fixed:1s")).until("commit", 5)
}

// A sender may use the attribute "redeliver" for data of its own: with one retry the message still has two attempts.
func TestOutsideAnAttributeNamedRedeliver(t *testing.T) {
	t.Parallel()
	server := brokers.RequireSQS(t)
	o := &origin{t: t, broker: "sqs+" + server, topic: newName()}
	client := sqs.New(sqs.Options{BaseEndpoint: &server, Region: "elasticmq", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
	})})
	q, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &o.topic})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"mine", `{"attempt":"0"}`, "{}", `{"attempt":"0","group":"` + o.topic + `","origin":"` + o.topic + `"}`} {
		if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: aws.String("v"),
			MessageAttributes: map[string]types.MessageAttributeValue{"redeliver": {DataType: aws.String("String"), StringValue: &value}}}); err != nil {
			t.Fatal(err)
		}
	}
	j := newJournal(o.work("--fail", "always", "--retries", "1", "--backoff", "fixed:1s"))
	j.until("dead_letter", 4)
	quiet := time.NewTimer(5 * time.Second)
	defer quiet.Stop()
	for {
		select {
		case line := <-j.p.lines:
			t.Errorf("after the last dead letter: %s", line)
		case <-quiet.C:
			if j.counts["attempt"] != 8 {
				t.Errorf("%d attempts of 4 messages with one retry", j.counts["attempt"])
			}
			return
		}
	}
}
