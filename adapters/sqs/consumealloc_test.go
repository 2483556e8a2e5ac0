package sqs

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// laneOf handles n messages, received ten at a time, with a handler that succeeds. Allocations of the client for a
// receive, and deletions, do not count.
func laneOf(tb testing.TB, n int, handle func(context.Context, types.Message) error) (run func() (requests int)) {
	tb.Helper()
	cfg := Config{Policy: redeliver.Policy{Timeout: time.Minute}}.withDefaults()
	cfg.Sink = nil
	queue := &api.Queue{Name: "orders", URL: "http://sqs.test/1/orders", MaxSize: api.DefaultMaxMessageSize}
	c := &client{cfg: cfg, maxHeld: cfg.maxHeld(), turn: engine.NewTurn()}
	r := newReader(context.Background(), c, &layout{main: queue, suspects: queue, dlq: queue, policy: cfg.Policy.WithDefaults()})
	e := engine.New(engine.Options[*delivery]{
		Sub: r.sub, Codec: codec{}, Store: r.store, Handle: func(ctx context.Context, d *delivery) error { return handle(ctx, d.Native) },
	})
	tb.Cleanup(e.Close)
	batches := make([][]types.Message, 0, n/api.MaxBatch)
	for i := range n / api.MaxBatch {
		batch := make([]types.Message, api.MaxBatch)
		for j := range batch {
			id := fmt.Sprintf("%036d", i*api.MaxBatch+j)
			batch[j] = types.Message{
				MessageId: &id, ReceiptHandle: aws.String("r-" + id), Body: aws.String("order"),
				Attributes:        map[string]string{wire.ReceiveCount: "1", wire.SentTimestamp: "1700000000000"},
				MessageAttributes: map[string]types.MessageAttributeValue{UUIDAttribute: {DataType: aws.String(wire.StringType), StringValue: &id}},
			}
		}
		batches = append(batches, batch)
	}
	return func() int {
		s := newSource(r, queue)
		gone := make(chan struct{}, n)
		var requests atomic.Int64
		s.deleter.batches = api.NewBatcher(deleteLinger, deleteWorkers, 0, nil, func(batch []*delivery) {
			requests.Add(1)
			for _, d := range batch {
				s.deleted(d)
				gone <- struct{}{}
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.RunLane(ctx, ctx, s, engine.LaneOptions[*delivery]{MaxAhead: cfg.maxAhead(), DrainTimeout: time.Second}, func(l driver.Lane[*delivery]) { s.lane = l })
		}()
		for _, batch := range batches {
			if _, ok := s.intake.reserveRoom(ctx, 0); !ok {
				tb.Error("the intake is closed")
			}
			s.passToLane(s.registerMessages(batch, time.Now(), cfg.VisibilityTimeout))
		}
		for range n {
			<-gone
		}
		cancel()
		<-done
		return n/api.MaxBatch + int(requests.Load())
	}
}

// A message is one allocation between its receive and its deletion. The lane's own setup is less than one allocation
// for twenty messages. Each request makes a few more, and how many messages share one depends on timing.
func TestConsumeAllocatesOnceOnSuccess(t *testing.T) {
	const n = 20_000
	run := laneOf(t, n, func(context.Context, types.Message) error { return nil })
	requests := 0
	all := testing.AllocsPerRun(1, func() { requests = run() })
	if per := (all - 3*float64(requests)) / n; per > 1+1./20 {
		t.Errorf("%.3f allocations for a message, not counting those of %d requests", per, requests)
	}
	t.Logf("%.3f allocations for a message in total", all/n)
}

func BenchmarkConsumeSuccess(b *testing.B) {
	const n = 20_000
	run := laneOf(b, n, func(context.Context, types.Message) error { return nil })
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
}
