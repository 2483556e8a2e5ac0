package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/internal/engine"
)

// consumeAll passes n messages through a source and an engine twice, and returns the allocations of the second run.
// It excludes what the client allocates for acks, because their number depends on timing.
func consumeAll(t *testing.T, n, inFlight int, opt func(handled chan<- int) engine.Options[*delivery]) (made float64) {
	cfg := Config{Policy: redeliver.Policy{Timeout: time.Minute}, Prefetch: inFlight, MaxInFlight: inFlight}.withDefaults()
	cfg.Sink = nil
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan int, n)
	r := newReader(context.Background(), &client{cfg: cfg, turn: engine.NewTurn()}, l)
	o := opt(handled)
	o.Sub, o.Codec, o.Store = r.sub, codec{layout: l}, r.store
	e := engine.New(o)
	t.Cleanup(e.Close)
	msgs := make([]amqp091.Delivery, n)
	for i := range msgs {
		msgs[i] = amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: fmt.Sprint("o-", i)}, Body: []byte("order"), DeliveryTag: uint64(i) + 1}
	}
	wires := make([]*amqptest.Server, 0, 2)
	made = testing.AllocsPerRun(1, func() {
		w := amqptest.NewServer(t)
		wires = append(wires, w)
		in := make(chan amqp091.Delivery, 256)
		s := newSource(r, queueConfig{kind: layout.MainQueue, queue: "orders", prefetch: cfg.Prefetch}, w.Ch)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.run(ctx, e, in) // the error is the end of the source
		}()
		for _, d := range msgs {
			in <- d
		}
		for left := n; left > 0; {
			left -= <-handled
		}
		close(in)
		stop()
		<-done
	})
	return (made - float64(20*wires[1].Acks.Load())) / float64(n)
}

// A message allocates nothing between the consumer and the ack. Shared allocations are less than one for ten
// messages.
func TestConsumeAllocatesNothingOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, inFlight = 20_000, 1000
		per := consumeAll(t, n, inFlight, func(handled chan<- int) engine.Options[*delivery] {
			// The first run starts all workers and is not measured, because their number would depend on the machine.
			var begun atomic.Int64
			var all sync.WaitGroup
			all.Add(inFlight)
			return engine.Options[*delivery]{Handle: handle(0, func(context.Context, amqp091.Delivery) error {
				if begun.Add(1) <= inFlight {
					all.Done()
					all.Wait()
				}
				handled <- 1
				return nil
			})}
		})
		if per > 1./10 {
			t.Errorf("%.3f allocations for a message, not counting those of acks", per)
		}
	})
}

// Consume refuses an invalid call before it connects.
func TestConsumeRefuses(t *testing.T) {
	err := Consume(context.Background(), Config{Marshaler: DefaultMarshaler{}}, []string{"a", "a"}, nil)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(refused.Problems) != 3 {
		t.Fatal(err)
	}
	for i, want := range []string{"Marshaler is amqp.DefaultMarshaler: must be nil", `queues[1] is "a": must not be listed twice`, "handler is nil: it is required"} {
		if got := refused.Problems[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := Consume(context.Background(), Config{}, nil, nil); err == nil || !strings.Contains(err.Error(), "queues is empty: it is required") {
		t.Error(err)
	}
}
