package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Without redeliver ("before") a failed message comes back forever. With it ("after") the message is in the DLQ after
// its retries.
func TestSQSConsumeExample(t *testing.T) {
	t.Parallel()
	dir := buildAll(t, "sqs-consume")
	for _, program := range []string{"before", "after"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			q := newSQSQueue(t, newName())
			if _, err := q.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &q.topic}); err != nil {
				t.Fatal(err)
			}
			url := q.url()
			for _, body := range []string{"order 1", "declined", "order 2"} {
				if _, err := q.api.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body)}); err != nil {
					t.Fatal(err)
				}
			}
			p := start(t, []string{
				"AWS_ENDPOINT_URL_SQS=" + strings.TrimPrefix(q.broker, "sqs+"), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x",
			}, filepath.Join(dir, program), q.topic)
			var lines []string
			for range 2 {
				line, _ := p.next()
				lines = append(lines, line)
			}
			slices.Sort(lines)
			if want := []string{"order 1 is charged", "order 2 is charged"}; !slices.Equal(lines, want) {
				t.Errorf("it says %q, want %q", lines, want)
			}
			if program == "after" {
				m := q.firstOf("-dlq")
				state := aws.ToString(m.MessageAttributes["redeliver"].StringValue)
				for _, field := range []string{`"reason":"exhausted"`, `"attempt":"4"`, `"error":"card declined"`} {
					if !strings.Contains(state, field) {
						t.Errorf("in the DLQ is %q with %s, want %s", aws.ToString(m.Body), state, field)
					}
				}
			}
			p.signal(os.Interrupt)
			if more, status := p.rest(), p.status(); len(more) > 0 || status != 0 {
				t.Errorf("it ended with status %d, and said %q", status, more)
			}
			if gone := "declined is not charged: card declined"; strings.Contains(p.errors(), gone) != (program == "before") {
				t.Errorf("whether it says %q is the difference:\n%s", gone, p.errors())
			}
		})
	}
}

// The programs differ in a few lines.
func TestSQSConsumeExampleIsAFewLines(t *testing.T) {
	before, after := source(t, "sqs-consume/before"), source(t, "sqs-consume/after")
	added := addedLines(before, after)
	if len(added) > 2 || len(before) >= 60 || len(after) >= len(before) {
		t.Errorf("after has %d lines for %d, of which these are new:\n%s", len(after), len(before), strings.Join(added, "\n"))
	}
}
