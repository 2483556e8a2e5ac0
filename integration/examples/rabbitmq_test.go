package examples_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

func TestRabbitMQExample(t *testing.T) {
	t.Parallel()
	url := brokers.RequireRabbitMQ(t).URL()
	checkShop(t, "rabbitmq", url, "The end of demo-orders.dlq", func() { checkQueues(t, url) })
}

// checkQueues checks the shop's queues and exchange after its end: only the DLQ has messages.
func checkQueues(t *testing.T, url string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demo-orders", "demo-orders.retry.1s", "demo-orders.retry", "demo-orders.retry.suspects", "demo-orders.dlq"} {
		// The count includes messages that the shop has read only a moment after its connection has ended.
		for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if (q.Messages > 0) == strings.HasSuffix(name, ".dlq") {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("queue %s holds %d messages", name, q.Messages)
				break
			}
		}
	}
	if err := ch.ExchangeDeclarePassive("demo-shop", "topic", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
}

func TestRabbitMQExampleRefuses(t *testing.T) {
	t.Parallel()
	checkRefusals(t, "rabbitmq", []refusal{
		{[]string{"--broker", "kafka://h:1"}, 2, "unknown scheme kafka://"},
		{[]string{"now"}, 2, "--broker"},
		{[]string{"--broker", "amqp://guest:secret@127.0.0.1:1/"}, 1, "docker run"},
		{[]string{"--broker", "amqp://guest:secret@127.0.0.1:1/"}, 1, "apt-get install rabbitmq-server"},
	})
}
