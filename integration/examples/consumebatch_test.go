package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
)

// Batches in each client's own types: every document is indexed except the one that is rejected. The one that is locked
// is retried.
func TestConsumeBatchExamples(t *testing.T) {
	t.Parallel()
	documents := []string{"document 1", "locked", "garbled", "document 2"}
	for broker, put := range map[string]func(t *testing.T) (args, env []string){
		"kafka": func(t *testing.T) ([]string, []string) {
			f := newKafkaTopic(t, newName())
			for i, d := range documents {
				f.produce(&kgo.Record{Key: fmt.Append(nil, "d-", i), Value: []byte(d)})
			}
			return append([]string{f.topic}, strings.Split(strings.TrimPrefix(f.broker, "kafka://"), ",")...), nil
		},
		"rabbitmq": func(t *testing.T) ([]string, []string) {
			url, queue := brokers.RequireRabbitMQ(t).URL(), newName()
			conn, err := amqp.Dial(url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { // before the connection is closed
				for _, suffix := range []string{"", ".retry", ".retry.suspects", ".retry.1s", ".retry.2s", ".retry.4s", ".dlq"} {
					_, _ = ch.QueueDelete(queue+suffix, false, false, false)
				}
			})
			for _, d := range documents {
				if err := ch.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{Body: []byte(d), DeliveryMode: amqp.Persistent}); err != nil {
					t.Fatal(err)
				}
			}
			return []string{queue, url}, nil
		},
		"sqs": func(t *testing.T) ([]string, []string) {
			q := newSQSQueue(t, newName())
			if _, err := q.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &q.topic}); err != nil {
				t.Fatal(err)
			}
			url := q.url()
			for _, d := range documents {
				if _, err := q.api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(d)}); err != nil {
					t.Fatal(err)
				}
			}
			return []string{q.topic}, []string{
				"AWS_ENDPOINT_URL_SQS=" + strings.TrimPrefix(q.broker, "sqs+"), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x",
			}
		},
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			dir := buildAll(t, broker+"-batch")
			if n := len(source(t, broker+"-batch")); n >= 60 {
				t.Errorf("it has %d lines", n)
			}
			args, env := put(t)
			p := start(t, env, filepath.Join(dir, broker+"-batch"), args...)
			var lines []string
			for range 3 {
				line, _ := p.next()
				lines = append(lines, line)
			}
			slices.Sort(lines)
			if want := []string{"document 1 is indexed", "document 2 is indexed", "locked is indexed"}; !slices.Equal(lines, want) {
				t.Errorf("it says %q, want %q", lines, want)
			}
			p.signal(os.Interrupt)
			if more, status := p.rest(), p.status(); len(more) > 0 || status != 0 {
				t.Errorf("it ended with status %d, and said %q", status, more)
			}
			for _, want := range []string{"rejected", "no such language"} {
				if !strings.Contains(p.errors(), want) {
					t.Errorf("its log does not say %q:\n%s", want, p.errors())
				}
			}
		})
	}
}
