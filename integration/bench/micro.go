package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// doMicro measures what one message that succeeds costs in the middleware alone. The message is made once: what a
// subscriber and a Router spend on it is not in the figure, on neither side.
func doMicro(s spec) (*outcome, error) {
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	defer stopProfile()
	nothing := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	if s.Side == peer {
		r, err := bench(peerRetry().Middleware(nothing), message.NewMessage("be9c4000-0000-4000-8000-000000000001", make([]byte, valueSize)))
		if err != nil {
			return nil, err
		}
		return &outcome{
			Count: 1, Ns: float64(r.T.Nanoseconds()) / float64(r.N), Allocs: r.AllocsPerOp(), Bytes: r.AllocedBytesPerOp(),
			Settings: "Retry as in Watermill's own example", PeakRSS: memory("VmHWM"),
		}, nil
	}
	bare, err := bench(middleware.Retry()(nothing), delivered(nil))
	if err != nil {
		return nil, err
	}
	sink, err := bench(middleware.Retry()(nothing), delivered(redeliver.NewSlogSink(slog.Default())))
	if err != nil {
		return nil, err
	}
	return &outcome{
		Count: 1, Ns: float64(bare.T.Nanoseconds()) / float64(bare.N), Allocs: bare.AllocsPerOp(), Bytes: bare.AllocedBytesPerOp(),
		NsSink: float64(sink.T.Nanoseconds()) / float64(sink.N), AllocSink: sink.AllocsPerOp(),
		Settings: "Timeout 5 min, Classify and Invalid set", PeakRSS: memory("VmHWM"),
	}, nil
}

func bench(h message.HandlerFunc, msg *message.Message) (testing.BenchmarkResult, error) {
	ctx := msg.Context()
	var failed error
	r := testing.Benchmark(func(b *testing.B) { //nolint:thelper // It is the benchmark itself.
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h(msg); err != nil {
				failed = err
			}
			msg.SetContext(ctx)
		}
	})
	return r, failed
}

// delivered is a message as an adapter delivers it.
func delivered(sink redeliver.Sink) *message.Message {
	sub := &delayqueue.Subscription{
		Origin: "orders", Group: "billing", Scheduler: nowhere{}, DeadLetters: nowhere{}, Sink: sink,
		Policy: redeliver.Policy{
			Timeout:  5 * time.Minute,
			Classify: func(error) redeliver.Class { return redeliver.Class{} },
			Invalid:  func(redeliver.Message) error { return nil },
		}.WithDefaults(),
	}
	msg := message.NewMessage("be9c4000-0000-4000-8000-000000000001", make([]byte, valueSize))
	d := &delayqueue.Delivery{Sub: sub, Record: nowhere{}, ID: msg.UUID, Source: redeliver.Source{Known: true, Offset: 1, Timestamp: time.Now()}}
	d.Begin(context.Background())
	msg.SetContext(d)
	return msg
}

// nowhere is what a message that succeeds never sees.
type nowhere struct{}

var errNowhere = errors.New("a message that succeeds is written nowhere")

func (nowhere) Schedule(context.Context, *delayqueue.Delivery, *redeliver.State) (string, error) {
	return "", errNowhere
}

func (nowhere) DeadLetter(context.Context, *delayqueue.Delivery, *redeliver.State) (string, error) {
	return "", errNowhere
}

func (nowhere) Message() (*message.Message, error) { return message.NewMessage("", nil), nil }
