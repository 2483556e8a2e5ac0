package examples_test

import (
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

func TestSQSExample(t *testing.T) {
	t.Parallel()
	q := newSQSQueue(t, "demo-orders")
	// The names of the queues are fixed, so they may contain messages of a killed run.
	for _, name := range []string{"demo-orders", "demo-orders-dlq", "demo-orders-suspects"} {
		if out, err := q.api.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name}); err == nil {
			if _, err := q.api.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Messages of a killed run come back when their visibility timeout is over.
	checkShop(t, "sqs", q.broker, "Some of demo-orders-dlq", func() {})
}

func TestSQSExampleRefuses(t *testing.T) {
	t.Parallel()
	checkRefusals(t, "sqs", []refusal{
		{[]string{"--broker", "kafka://h:1"}, 2, "unknown scheme kafka://"},
		{[]string{"now"}, 2, "--broker"},
		{[]string{"--broker", "sqs+http://key:secret@127.0.0.1:1"}, 1, "docker run"},
	})
}
