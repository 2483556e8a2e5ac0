package middleware_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// crowd delivers n messages to a Router, so many at once as a subscriber would.
type crowd struct {
	sub    *delayqueue.Subscription
	n      int
	out    chan *message.Message
	flight chan *message.Message
	done   sync.WaitGroup
}

func newCrowd(n, inFlight int) *crowd {
	sub := subscribe(&broker{}, redeliver.Policy{Timeout: minute})
	sub.Sink = nil
	return &crowd{sub: sub, n: n, out: make(chan *message.Message, 64), flight: make(chan *message.Message, inFlight)}
}

func (c *crowd) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	c.done.Go(func() { // in order, as offsets are committed
		for msg := range c.flight {
			<-msg.Acked()
		}
	})
	go func() {
		defer close(c.flight)
		for range c.n {
			d := &delayqueue.Delivery{Sub: c.sub, Record: record{}, ID: "orders/0/1"}
			d.Begin(ctx)
			msg := message.NewMessage("", nil)
			msg.SetContext(d)
			c.flight <- msg
			c.out <- msg
		}
	}()
	return c.out, nil
}

func (*crowd) Close() error { return nil }

// route runs the messages through a Router.
func (c *crowd) route(tb testing.TB, h message.NoPublishHandlerFunc) {
	tb.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		tb.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("charge", "orders", c, h)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	c.done.Wait()
	close(c.out)
	if err := router.Close(); err != nil {
		tb.Error(err)
	}
	if err := <-ended; err != nil {
		tb.Error(err)
	}
}

// paper is a broker that confirms whatever is written, and keeps nothing.
type paper struct{}

func (paper) Schedule(_ context.Context, _ *delayqueue.Delivery, st *redeliver.State) (string, error) {
	st.AppendHeaders(nil) // as every adapter does
	return "orders.billing.retry.1s", nil
}

func (paper) DeadLetter(_ context.Context, _ *delayqueue.Delivery, st *redeliver.State) (string, error) {
	st.AppendHeaders(nil)
	return "orders.billing.dlq", nil
}

// BenchmarkRouterFailure is what a message costs that fails and is scheduled again.
func BenchmarkRouterFailure(b *testing.B) {
	b.ReportAllocs()
	c := newCrowd(b.N, 200)
	c.sub.Scheduler, c.sub.DeadLetters = paper{}, paper{}
	c.route(b, func(*message.Message) error { return errHandler })
}

func BenchmarkRouter(b *testing.B) {
	for name, h := range map[string]message.NoPublishHandlerFunc{
		"alone":   func(*message.Message) error { return nil },
		"batches": middleware.Batch(middleware.BatchConfig{Size: 100, Timeout: ms}, func(context.Context, *middleware.MessageBatch) error { return nil }),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			newCrowd(b.N, 200).route(b, h)
		})
	}
}

// A message in a batch costs three allocations of ours, its attempt, its place in the
// batch and what its handler waits for. And no goroutine.
func TestBatchIsCheap(t *testing.T) {
	const size = 100
	sub := subscribe(&broker{}, redeliver.Policy{Timeout: minute})
	sub.Sink = nil
	most := 0
	h := middleware.Retry()(noPublish(middleware.Batch(middleware.BatchConfig{Size: size, Timeout: hour}, func(context.Context, *middleware.MessageBatch) error {
		most = max(most, runtime.NumGoroutine())
		return nil
	})))
	msgs := make([]*message.Message, size)
	for i := range msgs {
		msgs[i] = deliver(t.Context(), sub)
	}
	in, out := make(chan *message.Message), make(chan error, size)
	for range size {
		go func() {
			for msg := range in {
				_, err := h(msg)
				out <- err
			}
		}()
	}
	defer close(in)
	before := runtime.NumGoroutine()
	n := testing.AllocsPerRun(50, func() {
		for _, msg := range msgs {
			in <- msg
		}
		for range size {
			if err := <-out; err != nil {
				t.Error(err)
			}
		}
	})
	// 100 messages are 300; a batch has a few of its own, and other tests may be at it.
	if n > 3.9*size {
		t.Errorf("a batch of %d costs %v allocations", size, n)
	}
	if most > before+size/2 {
		t.Errorf("%d goroutines, and %d of them are the callers'", most, before)
	}
}

// Nothing is left behind of the messages of a batch.
func TestBatchLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := subscribe(&broker{}, redeliver.Policy{Timeout: hour})
		h := middleware.Retry()(noPublish(middleware.Batch(middleware.BatchConfig{}, func(context.Context, *middleware.MessageBatch) error { return nil })))
		session, end := context.WithCancel(t.Context())
		defer end()
		for range 3 {
			var all []<-chan answer
			for range 7 {
				all = append(all, run(h, deliver(session, sub)))
			}
			for _, a := range all {
				if got := <-a; got.err != nil {
					t.Error(got.err)
				}
			}
		}
		start := time.Now()
		end()
		synctest.Wait()
		if time.Since(start) != 0 {
			t.Error("something goes on")
		}
	})
}
