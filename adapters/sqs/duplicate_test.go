package sqs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
)

// SQS may give one message to two receives at once. It is held once, with the last receipt. A second entry would get
// no heartbeats.
func TestMessageReceivedTwiceAtOnceIsHeldOnce(t *testing.T) {
	f := newFake()
	f.Create("orders")
	c := f.client(t, Config{})
	l, err := brokerOf(c).provisionedLayout(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	s := newSource(newReader(t.Context(), brokerOf(c), l), l.main)
	for n := range 3000 {
		var fresh atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				m := types.Message{MessageId: aws.String(fmt.Sprint(n)), ReceiptHandle: aws.String(fmt.Sprint(n, i)), Body: aws.String("v")}
				fresh.Add(int64(len(s.registerMessages([]types.Message{m}, time.Now(), time.Minute))))
			})
		}
		all.Wait()
		if fresh.Load() != 1 {
			t.Fatalf("message %d is held %d times", n, fresh.Load())
		}
	}
}

// A message that came back too often to be kept is dropped, even while it is being read.
func TestMessageThatComesTooOftenIsDropped(t *testing.T) {
	f := newFake()
	f.Create("orders")
	c := f.client(t, Config{})
	l, err := brokerOf(c).provisionedLayout(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	s := newSource(newReader(t.Context(), brokerOf(c), l), l.main)
	s.lane = endedLane{}
	for n := range 300 {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				m := types.Message{
					MessageId: aws.String(fmt.Sprint(n)), ReceiptHandle: aws.String(fmt.Sprint(n, i)), Body: aws.String("v"),
					Attributes: map[string]string{wire.ReceiveCount: fmt.Sprint(maxReturns + 1 + i)},
				}
				s.registerMessages([]types.Message{m}, time.Now(), time.Minute)
			})
		}
		all.Wait()
	}
	if len(s.held) != 300 || s.unsettled != 300 {
		t.Errorf("%d messages are held, %d are not settled, want 300", len(s.held), s.unsettled)
	}
}

// endedLane is a lane that has ended.
type endedLane struct{ driver.Lane[*delivery] }

func (endedLane) Post(func()) bool { return false }
