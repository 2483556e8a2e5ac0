package sqs_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// consumeBatch opens a service that handles batches in SQS's own form.
func (h *harness) consumeBatch(_ testing.TB, cfg adaptertest.Config, bc redeliver.BatchConfig, fn adaptertest.BatchFunc) (run func(context.Context) error, kill func()) {
	w := newCuttableTransport(h)
	return func(ctx context.Context) error {
		return sqs.ConsumeBatch(ctx, h.nativeConfig(cfg, w), []string{cfg.Origin}, bc, func(ctx context.Context, b *sqs.Batch) error {
			return fn(ctx, adaptertest.BatchOf(b))
		})
	}, service{nil, w}.Kill
}

// consume returns a function that opens a service that handles messages in SQS's own form. The kit runs it in make prove.
func (h *harness) consume() func(testing.TB, adaptertest.Config, func(context.Context, adaptertest.Message) error) (func(context.Context) error, func()) {
	if !brokers.Proving {
		return nil
	}
	return func(_ testing.TB, cfg adaptertest.Config, fn func(context.Context, adaptertest.Message) error) (run func(context.Context) error, kill func()) {
		w := newCuttableTransport(h)
		config := h.nativeConfig(cfg, w)
		return func(ctx context.Context) error {
			return sqs.Consume(ctx, config, []string{cfg.Origin}, func(ctx context.Context, m types.Message) error {
				return fn(ctx, h.decode(&m))
			})
		}, service{nil, w}.Kill
	}
}

// nativeConfig is the configuration of a service without Watermill.
func (h *harness) nativeConfig(cfg adaptertest.Config, w *cuttableTransport) sqs.Config {
	own := anyAWS()
	own.HTTPClient = &http.Client{Transport: w}
	own.Retryer = func() aws.Retryer { return aws.NopRetryer{} } // redeliver repeats requests itself
	return sqs.Config{
		AWS: own, Endpoint: h.endpoint, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight,
		DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, VisibilityTimeout: hidden, WaitTime: time.Second, StateKeys: h.keys(),
	}
}

// Batches of SQS's own messages run on a real server. Each message has its own result and is unchanged, and the queue
// is empty in the end. In a batch of a FIFO queue no two messages are of one group.
func TestConsumeBatch(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", ".fifo"} {
		t.Run("queue"+end, func(t *testing.T) {
			t.Parallel()
			endpoint := brokers.RequireSQS(t)
			h := &harness{fifo: end != ""}
			h.api = awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
			queue, _ := h.origin(t, 0)
			url := h.url(t, queue)
			const groups, each = 5, 8
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
				}
			}
			var mu sync.Mutex
			ran := map[string][]int{} // attempts by body
			largest := 0
			ended := make(chan string, groups*each)
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
				done <- sqs.ConsumeBatch(ctx, cfg, []string{queue}, redeliver.BatchConfig{Size: 10, Timeout: 200 * time.Millisecond}, func(_ context.Context, b *sqs.Batch) error {
					mu.Lock()
					defer mu.Unlock()
					largest = max(largest, len(b.Messages))
					latest := map[string]string{} // by group
					for _, m := range b.Messages {
						st, body := m.State(), aws.ToString(m.Record.Body)
						if raw := m.Record.MessageAttributes["raw"]; len(m.Record.MessageAttributes) != 1 || !slices.Equal(raw.BinaryValue, []byte{0, 255}) || m.Record.ReceiptHandle != nil {
							t.Errorf("attempt %d of %s has %+v", st.Attempt(), body, m.Record)
						}
						group := m.Record.Attributes["MessageGroupId"]
						if h.fifo && latest[group] >= body {
							t.Errorf("%s comes before %s in a batch", latest[group], body)
						}
						latest[group] = body
						ran[body] = append(ran[body], st.Attempt())
						switch {
						case body == "1-3" && st.Attempt() == 1:
							m.Retry()
						case body == "2-7":
							m.Answer(errDeclined)
						case body == "3-1":
							m.Reject("no such card")
						}
					}
					return nil
				})
			}()
			late := time.After(90 * time.Second)
			for range groups * each {
				select {
				case <-ended:
				case <-late:
					mu.Lock()
					defer mu.Unlock()
					t.Fatalf("%d of %d ran", len(ran), groups*each)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			want := map[string]int{"1-3": 2, "2-7": 3}
			for body, got := range ran {
				n := max(1, want[body])
				inVain := len(got) - n // with an earlier message of its group that failed
				if inVain < 0 || inVain > 0 && (!h.fifo || inVain > 2 || body[2] == '0') || got[len(got)-1] != n {
					t.Errorf("%s ran as attempts %v, want %d", body, got, n)
				}
			}
			if largest < 2 {
				t.Errorf("no batch had more than %d", largest)
			}
			var dead []string
			for _, m := range h.dead(t, "", queue, 2) {
				dead = append(dead, string(m.Body))
			}
			if slices.Sort(dead); !slices.Equal(dead, []string{"2-7", "3-1"}) {
				t.Errorf("the DLQ has %q", dead)
			}
		})
	}
}
