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
	"github.com/redeliver/redeliver/internal/engine"
)

// consumeAll runs n messages through a source and an engine twice, and returns what the second run allocated, without what the
// client makes for an ack, which is not ours: how many are acked by one depends on how fast all that is.
func consumeAll(t *testing.T, n, inFlight int, opt func(handled chan<- int) engine.Options[*delivery]) (made float64) {
	cfg := Config{Policy: redeliver.Policy{Timeout: time.Minute}, Prefetch: inFlight, MaxInFlight: inFlight}.withDefaults()
	cfg.Sink = nil
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan int, n)
	r := newReader(context.Background(), &Client{cfg: cfg, turn: engine.NewTurn()}, l)
	o := opt(handled)
	o.Sub, o.Codec, o.Store = r.sub, codec{l}, r.store
	e := engine.New(o)
	t.Cleanup(e.Close)
	msgs := make([]amqp091.Delivery, n)
	for i := range msgs {
		msgs[i] = amqp091.Delivery{Headers: amqp091.Table{UUIDHeader: fmt.Sprint("o-", i)}, Body: []byte("order"), DeliveryTag: uint64(i) + 1}
	}
	wires := make([]*testServer, 0, 2)
	made = testing.AllocsPerRun(1, func() {
		w := newTestServer(t)
		wires = append(wires, w)
		in := make(chan amqp091.Delivery, 256)
		s := newSource(r, queueConfig{kind: mainQueue, queue: "orders", prefetch: cfg.Prefetch}, w.ch)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.run(ctx, e, in) // that it has ended
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
	return (made - float64(20*wires[1].acks.Load())) / float64(n)
}

// The way of a message from the consumer through source, lane, worker and handler to the
// ack allocates nothing of its own: what is made for many at once is less
// than an allocation for ten.
func TestConsumeAllocatesNothingOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, inFlight = 20_000, 1000
		per := consumeAll(t, n, inFlight, func(handled chan<- int) engine.Options[*delivery] {
			// All workers are begun in the first run, which is not measured: how many there would be by themselves, the machine decides.
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
			t.Errorf("%.3f allocations for a message, beside those for acks", per)
		}
	})
}

// What a call of Consume lacks is said before anything is connected to.
func TestConsumeRefuses(t *testing.T) {
	err := Consume(context.Background(), Config{Marshaler: DefaultMarshaler{}}, []string{"a", "a"}, nil)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(refused.Problems) != 3 {
		t.Fatal(err)
	}
	for i, want := range []string{"Marshaler is amqp.DefaultMarshaler: must be nil", `queues[1] is "a": must not be there twice`, "handler is nil: it is required"} {
		if got := refused.Problems[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := Consume(context.Background(), Config{}, nil, nil); err == nil || !strings.Contains(err.Error(), "queues is empty: it is required") {
		t.Error(err)
	}
}
