//go:build prove

package sqs_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// SQS itself fills a DLQ by a RedrivePolicy. Its messages are shown and replayed as they were sent.
func TestADLQThatSQSFilledIsReplayed(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	h := &harness{endpoint: endpoint}
	h.api = awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
	origin, _ := h.origin(t, 1)
	others, _ := h.origin(t, 1)
	arn, err := h.api.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: aws.String(h.url(t, others)), AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	url := h.url(t, origin)
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, arn.Attributes["QueueArn"])
	if _, err := h.api.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{"RedrivePolicy": policy}}); err != nil {
		t.Fatal(err)
	}
	h.put(t, origin, adaptertest.Message{ID: "a", Body: []byte("{}"), Headers: []adaptertest.Header{{Name: "raw", Value: []byte{0, 0xff}}}})
	c, err := sqs.Open(t.Context(), sqs.Config{AWS: anyAWS(), Endpoint: endpoint, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: origin, DLQ: others})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), adaptertest.Timeout)
	defer cancel()
	for n := int64(0); n == 0; { // received once and visible again, it is moved
		if _, err := h.api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, VisibilityTimeout: 1, WaitTimeSeconds: 1}); err != nil {
			t.Fatal(err)
		}
		if n, _, err = q.Count(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var found []*deadletter.Message
	for m, err := range deadletter.Browse(ctx, q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	if len(found) != 1 || found[0].ID != "a" || found[0].Mismatch != "" || found[0].State.Origin != origin {
		t.Fatalf("the DLQ has %+v", found)
	}
	if m := found[0]; m.Writer != deadletter.WriterSQS || m.State.Reason != redeliver.ReasonExhausted || len(m.Foreign) != 1 {
		t.Errorf("it says %+v", m)
	}
	if task, err := deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil || task.Counts.Replayed != 1 {
		t.Fatalf("the replay says %+v: %v", task, err)
	}
	out, err := h.api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("%d messages are in the queue: %v", len(out.Messages), err)
	}
	m := h.decode(&out.Messages[0])
	if m.ID != "a" || string(m.Body) != "{}" || len(m.Headers) != 1 || string(m.Headers[0].Value) != "\x00\xff" {
		t.Errorf("it came back as %+v", m)
	}
}
