package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// successful is a message whose policy sets Timeout, Classify and Invalid, as
// its subscriber delivers it.
func successful() *message.Message {
	sub := &delayqueue.Subscription{
		Origin: "orders", Group: "billing",
		Policy: redeliver.Policy{
			Timeout:  time.Minute,
			Classify: func(error) redeliver.Class { return redeliver.Class{} },
			Invalid: func(m redeliver.Message) error {
				if m.Headers.Get("tenant") == "deleted" {
					return errors.New("the tenant is gone")
				}
				return nil
			},
		}.WithDefaults(),
	}
	d := &delayqueue.Delivery{Sub: sub, ID: "orders/0/1"}
	d.Begin(context.Background())
	msg := message.NewMessage("1", []byte("payload"))
	msg.Metadata.Set("tenant", "acme")
	msg.SetContext(d)
	return msg
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// One allocation for a message that succeeds: the attempt.
func TestSuccessAllocatesOnce(t *testing.T) {
	msg, h := successful(), middleware.Retry()(succeed)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := h(msg); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("a success costs %v allocations, want 1", n)
	}
}

func BenchmarkRetrySuccess(b *testing.B) {
	msg, h := successful(), middleware.Retry()(succeed)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h(msg); err != nil {
			b.Fatal(err)
		}
	}
}

// The same from as many goroutines as there are CPUs: what they share must not
// hold them up.
func BenchmarkRetrySuccessParallel(b *testing.B) {
	h := middleware.Retry()(succeed)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		msg := successful()
		for pb.Next() {
			if _, err := h(msg); err != nil {
				b.Error(err)
			}
		}
	})
}
