package examples_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// origin is a topic and its group, or a queue, of one test.
type origin struct {
	t            *testing.T
	broker       string // its URL
	topic, group string
	key          *string // of what send sends
	// send writes a message with these headers and returns the id that it will have.
	send func(headers map[string]string) (id string)
}

func newName() string { return "worker-" + strings.ToLower(rand.Text()[:10]) }

// work starts a worker with these arguments after the ones that every worker needs.
func (o *origin) work(args ...string) *program {
	o.t.Helper()
	// Scripts give --group for every broker.
	common := []string{"--topic", o.topic, "--group", o.group}
	return start(o.t, []string{"REDELIVER_BROKER=" + o.broker}, "worker", append(common, args...)...)
}

// kafkaTopic is an origin on the run's Kafka.
type kafkaTopic struct {
	*origin
	client *kgo.Client
}

func newKafkaTopic(t *testing.T, name string) *kafkaTopic {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	// Each test has its own group, because others would rebalance it.
	k := &kafkaTopic{origin: &origin{t: t, broker: "kafka://" + strings.Join(addrs, ","), topic: name, group: name + "-group", key: new("k")}}
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k.client = client
	admin := kadm.NewClient(client)
	kafkatest.MakeTopic(t, admin, 1, nil, name)
	k.send = func(headers map[string]string) string {
		rec := &kgo.Record{Key: []byte("k"), Value: []byte("v")}
		for name, value := range headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		return k.produce(rec)
	}
	return k
}

// produce writes records and returns the id that the last one will have.
func (k *kafkaTopic) produce(recs ...*kgo.Record) (id string) {
	k.t.Helper()
	if err := k.client.ProduceSync(k.t.Context(), recs...).FirstErr(); err != nil {
		k.t.Fatal(err)
	}
	rec := recs[len(recs)-1]
	return fmt.Sprintf("%s/0/%d@%d", k.topic, rec.Offset, rec.Timestamp.UnixMilli())
}

// queue is an origin on the run's RabbitMQ. The worker declares it.
type queue struct {
	*origin
	ch      *amqp.Channel
	returns chan amqp.Return
}

func newQueue(t *testing.T, name string) *queue {
	t.Helper()
	url := brokers.RequireRabbitMQ(t).URL()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{origin: &origin{t: t, broker: url, topic: name, group: name + "-group"}, ch: ch, returns: ch.NotifyReturn(make(chan amqp.Return, 1))}
	q.send = func(headers map[string]string) string {
		m := amqp.Publishing{MessageId: rand.Text(), Body: []byte("v"), Headers: amqp.Table{}}
		for name, value := range headers {
			m.Headers[name] = value
		}
		q.publish(m)
		return m.MessageId
	}
	return q
}

// publish waits until the queue exists and writes a message to it.
func (q *queue) publish(m amqp.Publishing) {
	q.t.Helper()
	late, again := time.After(maxWait), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		confirm, err := q.ch.PublishWithDeferredConfirm("", q.topic, true, false, m)
		if err != nil {
			q.t.Fatalf("publishing to %s: %v", q.topic, err)
		}
		taken := confirm.Wait() // not by a queue that is being declared
		select {
		case <-q.returns: // there is none yet; returns come before their confirm
			taken = false
		default:
		}
		if taken {
			return
		}
		select {
		case <-again.C:
		case <-late:
			q.t.Fatalf("%s was not declared for %s", q.topic, maxWait)
		}
	}
}

// take returns the only message of a queue and removes it.
func (q *queue) take(name string) amqp.Delivery {
	q.t.Helper()
	d, ok, err := q.ch.Get(name, true)
	if err != nil || !ok || d.MessageCount > 0 {
		q.t.Fatalf("queue %s: %v, a message: %t, %d more; want one and no more", name, err, ok, d.MessageCount)
	}
	return d
}
