package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
)

var errDeclined = errors.New("card declined")

// Consume passes SQS's own messages on a real server. A group keeps its order, every failure has its attempts, every
// message has one end, and the queue is empty in the end.
func TestConsume(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", ".fifo"} {
		t.Run("queue"+end, func(t *testing.T) {
			t.Parallel()
			endpoint := brokers.RequireSQS(t)
			h := &harness{fifo: end != ""}
			h.api = awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
			queue, _ := h.origin(t, 0)
			url := h.url(t, queue)
			const groups, each = 8, 25
			want := map[string]int{} // attempts
			for n := range each {
				for g := range groups {
					in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(fmt.Sprintf("%d-%d", g, n)), MessageAttributes: map[string]types.MessageAttributeValue{
						"raw": {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 255}},
					}}
					if h.fifo {
						in.MessageGroupId, in.MessageDeduplicationId = aws.String(fmt.Sprint("g", g)), in.MessageBody
					}
					if _, err := h.api.SendMessage(t.Context(), in); err != nil {
						t.Fatal(err)
					}
					want[*in.MessageBody] = 1
				}
			}
			want["1-3"], want["2-7"] = 2, 3
			var mu sync.Mutex
			ran := map[string][]int{} // attempts by body
			var order []string        // of the messages of one group that succeeded
			ended := make(chan string, len(want))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			cfg := sqs.Config{
				AWS: anyAWS(), Endpoint: endpoint, WaitTime: time.Second, VisibilityTimeout: time.Minute,
				Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Fixed(time.Second)},
				Sink: redeliver.SinkFunc(func(e redeliver.Event) {
					switch e.(type) {
					case redeliver.Committed, redeliver.DeadLettered:
						ended <- fmt.Sprintf("%T", e)
					}
				}),
			}
			go func() {
				done <- sqs.Consume(ctx, cfg, []string{queue}, func(ctx context.Context, m types.Message) error {
					st, _ := redeliver.FromContext(ctx)
					body := aws.ToString(m.Body)
					if raw := m.MessageAttributes["raw"]; len(m.MessageAttributes) != 1 || aws.ToString(raw.DataType) != "Binary.png" || !slices.Equal(raw.BinaryValue, []byte{0, 255}) {
						t.Errorf("attempt %d of %s has %v", st.Attempt(), body, m.MessageAttributes)
					}
					mu.Lock()
					defer mu.Unlock()
					ran[body] = append(ran[body], st.Attempt())
					if body == "1-3" && st.Attempt() == 1 || body == "2-7" {
						return errDeclined
					}
					if strings.HasPrefix(body, "1-") {
						order = append(order, body)
					}
					return nil
				})
			}()
			late := time.After(90 * time.Second)
			for range want {
				select {
				case <-ended:
				case <-late:
					mu.Lock()
					defer mu.Unlock()
					t.Fatalf("%d of %d ran", len(ran), len(want))
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			for body, n := range want {
				if got := ran[body]; len(got) != n || got[n-1] != n {
					t.Errorf("%s ran as attempts %v, want %d", body, got, n)
				}
			}
			if inOrder := slices.IsSortedFunc(order, func(a, b string) int {
				var g, x, y int
				_, _ = fmt.Sscanf(a, "%d-%d", &g, &x)
				_, _ = fmt.Sscanf(b, "%d-%d", &g, &y)
				return x - y
			}); h.fifo && !inOrder {
				t.Errorf("group 1 ran in the order %v", order)
			}
			if dead := h.dead(t, "", queue, 1); len(dead) != 1 || string(dead[0].Body) != "2-7" {
				t.Errorf("the DLQ has %v", dead)
			}
			out, err := h.api.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
				if n := out.Attributes[name]; n != "0" {
					t.Errorf("%s is %s", name, n)
				}
			}
		})
	}
}
