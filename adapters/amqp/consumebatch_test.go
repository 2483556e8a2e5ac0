package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The way of a message through lane and batch to the ack allocates nothing of its
// own either: what a batch of a hundred needs is less than an allocation for three.
// The clock stands still meanwhile: what has waited for its batch for long is watched,
// and that allocates.
func TestConsumeBatchAllocatesForTheBatchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 20_000, 100
		cfg := Config{Policy: redeliver.Policy{Timeout: time.Minute}, Prefetch: 1000, MaxInFlight: 1000}.withDefaults()
		cfg.Sink = nil
		l, err := newLayout(&cfg, "orders")
		if err != nil {
			t.Fatal(err)
		}
		handled := make(chan int, n)
		r := newReader(context.Background(), &Client{cfg: cfg, turn: delayqueue.NewTurn()}, l)
		r.native = &native{batches: delayqueue.NewBatchWorkers(BatchConfig{Size: size, Concurrency: 1, Timeout: time.Minute}, r.sub, func(b *delayqueue.Batch, all []*delayqueue.Batched) error {
			nb := newBatch(b, all)
			for i, m := range nb.Messages {
				if i%2 == 0 && !m.Ack() { // the rest is done at the end
					t.Error("an ack does not count")
				}
			}
			handled <- len(nb.Messages)
			return nil
		})}
		t.Cleanup(r.native.close)
		msgs := make([]amqp.Delivery, n)
		for i := range msgs {
			msgs[i] = amqp.Delivery{Headers: amqp.Table{UUIDHeader: fmt.Sprint("o-", i)}, Body: []byte("order"), DeliveryTag: uint64(i) + 1}
		}
		wires := make([]*wire, 0, 2)
		all := testing.AllocsPerRun(1, func() {
			w := newWire(t)
			wires = append(wires, w)
			in := make(chan amqp.Delivery, 256)
			lane := newLane(r, laneConfig{kind: mainQueue, queue: "orders", prefetch: cfg.Prefetch, slots: make(chan struct{}, cfg.MaxInFlight)}, w.ch, in)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = lane.run(context.Background()) // that its consumer is gone, at the end
			}()
			for _, d := range msgs {
				in <- d
			}
			for left := n; left > 0; {
				left -= <-handled
			}
			close(in)
			<-done
		})
		acks := wires[1].acks.Load()
		if per := (all - float64(20*acks)) / n; per > 1./3 {
			t.Errorf("%.3f allocations for a message, beside those for %d acks", per, acks)
		}
	})
}

// What a call of ConsumeBatch lacks is said before anything is connected to.
func TestConsumeBatchRefuses(t *testing.T) {
	fine := func(context.Context, *Batch) error { return nil }
	for want, err := range map[string]error{
		"Marshaler queues handler BatchConfig.Timeout BatchConfig.Size": ConsumeBatch(t.Context(), Config{MaxInFlight: 5, Marshaler: DefaultMarshaler{}}, nil, BatchConfig{Size: 6, Timeout: -5}, nil),
		"BatchConfig.Size": ConsumeBatch(t.Context(), Config{}, []string{"orders"}, BatchConfig{Size: DefaultMaxInFlight + 1}, fine),
	} {
		refused, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok {
			t.Fatal(err)
		}
		var fields []string
		for _, p := range refused.Problems {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("refused for %q, want %q: %v", got, want, err)
		}
	}
}
