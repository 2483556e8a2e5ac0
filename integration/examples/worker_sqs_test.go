package examples_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/integration/brokers"
)

// sqsQueue is an origin on the run's ElasticMQ. The worker creates it.
type sqsQueue struct {
	*origin
	api   *awssqs.Client
	group string // the message group of what send sends to a FIFO queue
}

func newSQSQueue(t *testing.T, name string) *sqsQueue {
	t.Helper()
	endpoint := brokers.RequireSQS(t)
	q := &sqsQueue{
		origin: &origin{t: t, broker: "sqs+" + endpoint, topic: name, group: name + "-group"}, group: "g",
		api: awssqs.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")},
			func(o *awssqs.Options) { o.BaseEndpoint = aws.String(endpoint) }),
	}
	if strings.HasSuffix(name, ".fifo") {
		q.key = &q.group
	}
	q.send = func(headers map[string]string) string {
		in := &awssqs.SendMessageInput{QueueUrl: aws.String(q.url()), MessageBody: aws.String("v"), MessageAttributes: map[string]types.MessageAttributeValue{}}
		if q.key != nil {
			in.MessageGroupId, in.MessageDeduplicationId = q.key, aws.String(newName())
		}
		for name, value := range headers {
			in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
		}
		out, err := q.api.SendMessage(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return *out.MessageId
	}
	return q
}

// url waits until the queue exists and returns its URL.
func (q *sqsQueue) url() string {
	q.t.Helper()
	late, again := time.After(maxWait), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		out, err := q.api.GetQueueUrl(q.t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String(q.topic)})
		if err == nil {
			return *out.QueueUrl
		}
		if _, none := errors.AsType[*types.QueueDoesNotExist](err); !none {
			q.t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-late:
			q.t.Fatalf("%s was not created for %s", q.topic, maxWait)
		}
	}
}

// firstOf waits for a message in the queue whose name has this suffix, such as the DLQ, and returns it.
func (q *sqsQueue) firstOf(suffix string) *types.Message {
	q.t.Helper()
	beside := &sqsQueue{origin: &origin{t: q.t, topic: q.topic + suffix}, api: q.api}
	url := beside.url()
	for begun := time.Now(); time.Since(begun) < maxWait; {
		out, err := q.api.ReceiveMessage(q.t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
		if err != nil {
			q.t.Fatal(err)
		}
		if len(out.Messages) > 0 {
			return &out.Messages[0]
		}
	}
	q.t.Fatalf("%s has been empty for %s", beside.topic, maxWait)
	return nil
}

// The lines about a FIFO queue are the same, with the message group as the key. The queue may belong to another
// program, and --topic may be its URL.
func TestWorkerReadsAFIFOQueue(t *testing.T) {
	t.Parallel()
	for named, topic := range map[string]func(q *sqsQueue) string{
		"by its name": func(q *sqsQueue) string { return q.topic },
		"by its URL":  func(q *sqsQueue) string { return q.url() },
	} {
		t.Run(named, func(t *testing.T) {
			t.Parallel()
			q := newSQSQueue(t, newName()+".fifo")
			if _, err := q.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{
				QueueName: &q.topic, Attributes: map[string]string{"FifoQueue": "true"},
			}); err != nil {
				t.Fatal(err)
			}
			p := q.work(append(quick, "--fail", "header:fail", "--topic", topic(q))...)
			for rule, steps := range rules {
				p.expect(q.origin, q.send(map[string]string{"fail": rule}), q.key, quickDelay, steps...)
			}
			p.stop()
			for _, word := range []string{"--group is ignored", "SQS"} {
				if !strings.Contains(p.errors(), word) {
					t.Errorf("stderr has no %q: %s", word, p.errors())
				}
			}
		})
	}
}

func TestWorkerRefusesSQS(t *testing.T) {
	t.Parallel()
	q := newSQSQueue(t, newName())
	host := strings.TrimPrefix(q.broker, "sqs+http://")
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--broker", "sqs+http://key:secret@127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"--broker", "sqs+http://key:secret/@" + host}, 2, "%2F"},
		{[]string{"--broker", "sqs://key:secret@eu-west-1"}, 2, "a region only"},
		{[]string{"--broker", "sqs://eu-west-1?x=1"}, 2, `unknown parameter "x"`},
		{[]string{"--topic", ""}, 2, "--topic"},
		{[]string{"--topic", "a.queue"}, 1, "a.queue"},
		{[]string{"--topic", strings.Repeat("q", 81)}, 1, "up to 80"},
		{[]string{"--backoff", "fixed:1us"}, 2, "at least 1ms"},
		{[]string{"--topic", "some.fifo", "--backoff", "fixed:13h"}, 1, "12 hours"},
	} {
		p := q.work(c.args...)
		lines, status := p.rest(), p.status()
		if said := p.errors(); status != c.status || !strings.Contains(said, c.say) || strings.Contains(said, "secret") || len(lines) > 0 {
			t.Errorf("%v: exit status %d, stderr %q, lines %q; want %d and %q", c.args, status, said, lines, c.status, c.say)
		}
	}
}
