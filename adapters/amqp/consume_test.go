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

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The way of a message from the consumer through lane, worker and handler to the
// ack allocates nothing of its own: what a lane makes for many at once is less
// than an allocation for twenty. What the client makes for an ack is not ours, and
// how many are acked by one depends on how fast all that is.
func TestConsumeAllocatesNothingOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, inFlight = 20_000, 1000
		cfg := Config{Policy: redeliver.Policy{Timeout: time.Minute}, Prefetch: inFlight, MaxInFlight: inFlight}.withDefaults()
		cfg.Sink = nil
		l, err := newLayout(&cfg, "orders")
		if err != nil {
			t.Fatal(err)
		}
		handled := make(chan struct{}, n)
		r := newReader(context.Background(), &Client{cfg: cfg, turn: delayqueue.NewTurn()}, l)
		// All workers are begun in the first run, which is not measured: how many there would be by themselves, the machine decides.
		var begun atomic.Int64
		var all sync.WaitGroup
		all.Add(inFlight)
		r.native = newNative(func(context.Context, amqp.Delivery) error {
			if begun.Add(1) <= inFlight {
				all.Done()
				all.Wait()
			}
			handled <- struct{}{}
			return nil
		})
		t.Cleanup(r.native.workers.Close)
		msgs := make([]amqp.Delivery, n)
		for i := range msgs {
			msgs[i] = amqp.Delivery{Headers: amqp.Table{UUIDHeader: fmt.Sprint("o-", i)}, Body: []byte("order"), DeliveryTag: uint64(i) + 1}
		}
		wires := make([]*wire, 0, 2)
		made := testing.AllocsPerRun(1, func() {
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
			for range n {
				<-handled
			}
			close(in)
			<-done
		})
		acks := wires[1].acks.Load()
		if per := (made - float64(20*acks)) / n; per > 1./20 {
			t.Errorf("%.3f allocations for a message, beside those for %d acks", per, acks)
		}
	})
}

// What is said of a delivery when its attempt is over does not answer for the next
// attempt in place: an attempt that was given up for its time did.
func TestALateAnswerIsNotThatOfTheNextAttempt(t *testing.T) {
	for name, late := range map[string]func(amqp.Delivery) error{
		"nack":   func(d amqp.Delivery) error { return d.Nack(false, true) },
		"reject": func(d amqp.Delivery) error { return d.Reject(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFile(t, Config{Policy: redeliver.Policy{Order: redeliver.Blocking, Timeout: time.Second, Backoff: redeliver.Fixed(10 * time.Millisecond)}}, nil)
				var first amqp.Delivery
				f.r.native.handle = func(ctx context.Context, d amqp.Delivery) error {
					if st, _ := redeliver.FromContext(ctx); st.Attempt() > 1 {
						return late(first)
					}
					first = d
					<-ctx.Done()
					return nil
				}
				f.r.sub.DeadLetters = grave{}
				ended := make(chan redeliver.Event, 1)
				f.r.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
					switch e.(type) {
					case redeliver.Committed, redeliver.DeadLettered:
						ended <- e
					}
				})
				l, in := f.lane(false, "m")
				end := f.run(t.Context(), l)
				e := <-ended
				if c, ok := e.(redeliver.Committed); !ok || c.State.Attempts != 1 {
					t.Errorf("it ended in a %T, %+v", e, e)
				}
				close(in)
				_ = f.ended(end)
			})
		})
	}
}

// What a call of Consume lacks is said before anything is connected to.
func TestConsumeRefuses(t *testing.T) {
	err := Consume(context.Background(), Config{Marshaler: DefaultMarshaler{}}, []string{"a", "a"}, nil)
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(refused.Problems) != 3 {
		t.Fatal(err)
	}
	for i, want := range []string{"Marshaler is amqp.DefaultMarshaler: must be nil", `queues[1] is "a": must not be there twice`, "handler is nil: is required"} {
		if got := refused.Problems[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := Consume(context.Background(), Config{}, nil, nil); err == nil || !strings.Contains(err.Error(), "queues is empty: is required") {
		t.Error(err)
	}
}
