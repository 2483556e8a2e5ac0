package sqs_test

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// The contract of a deadletter.Queue runs on standard and on FIFO queues.
func TestDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for name, fifo := range map[string]bool{"standard": false, "FIFO": true} {
		t.Run(name, func(t *testing.T) { // sequentially, because leases expire on a busy machine
			endpoint := brokers.RequireSQS(t)
			h := newHarness(t, endpoint, fifo)
			adaptertest.RunDeadLetters(t, h, deadLetters(endpoint))
		})
	}
}

// deadLetters opens DLQs, each as a separate process whose connections are cut when it is killed.
func deadLetters(endpoint string) adaptertest.DeadLetters {
	return func(t testing.TB, origin, _ string) (deadletter.Queue, func()) {
		t.Helper()
		w := &cuttableTransport{h: &harness{}, cut: make(chan struct{})}
		own := anyAWS()
		own.HTTPClient = &http.Client{Transport: w}
		own.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
		c, err := sqs.Open(context.Background(), sqs.Config{AWS: own, Endpoint: endpoint, StateKeys: [][]byte{kitKey}, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
		if err != nil {
			t.Fatal(err)
		}
		lease := time.Minute // so long that none expires on a busy machine
		if name := t.Name(); strings.Contains(name, "Dies") || strings.Contains(name, "SecondRunner") {
			lease = 8 * time.Second // except those that others wait for
		} else if strings.Contains(name, "Killed") { // these wait dozens of times
			lease = 3 * time.Second
		}
		q, err := c.Operations().DeadLetters(context.Background(), mq.DeadLetterConfig{Topic: origin, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			api := awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
			state := strings.TrimSuffix(q.Info().DLQ, ".fifo") + "-state.fifo"
			if out, err := api.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &state}); err == nil {
				_, _ = api.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
			}
		})
		return keyedQueue{q}, service{c, w}.Kill
	}
}

// keyedQueue shows the keys that the kit knows, because the harness gives names to a FIFO queue's groups.
type keyedQueue struct{ deadletter.Queue }

func (k keyedQueue) Unwrap() deadletter.Queue { return k.Queue }

func (k keyedQueue) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := k.Queue.Scan(ctx, from)
	return keyedScan{s}, err
}

type keyedScan struct{ deadletter.Scan }

func (s keyedScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	return s.Scan.Next(ctx, func(m *deadletter.Message) bool {
		if key, ok := strings.CutPrefix(string(m.Key), "key-"); ok {
			m.Key, _ = hex.DecodeString(key)
		} else {
			m.Key = nil
		}
		return want == nil || want(m)
	})
}
