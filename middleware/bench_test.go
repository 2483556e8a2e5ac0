package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
)

// billing returns a queue whose policy sets Timeout and Classify.
func billing(tb testing.TB, invalid func(redeliver.Message) error) *enginetest.Queue {
	tb.Helper()
	q := enginetest.New(redeliver.Policy{Timeout: hour, Classify: func(error) redeliver.Class { return redeliver.Class{} }, Invalid: invalid})
	q.Metadata = message.Metadata{"tenant": "acme"}
	return q.Start(tb)
}

// handleOne runs one message of a queue through a handler, as a Router does.
func handleOne(tb testing.TB, q *enginetest.Queue, h message.HandlerFunc) {
	tb.Helper()
	msg := q.Deliver()
	if _, err := h(msg); err != nil {
		tb.Fatal(err)
	}
	msg.Ack()
	q.WaitSettled(1)
}

// Retry costs a message that succeeds one allocation, the attempt. Policy.Invalid costs another, its argument.
func TestSuccessAllocatesOnce(t *testing.T) {
	allocs := func(h message.HandlerFunc, invalid func(redeliver.Message) error) float64 {
		q := billing(t, invalid)
		return testing.AllocsPerRun(2000, func() { handleOne(t, q, h) })
	}
	without, with := allocs(succeed, nil), allocs(middleware.Retry()(succeed), nil)
	asked := allocs(middleware.Retry()(succeed), func(m redeliver.Message) error {
		if m.Headers.Get("tenant") == "deleted" {
			return errors.New("the tenant is gone")
		}
		return nil
	})
	if with > without+1 || asked > without+2 {
		t.Errorf("a success costs %v allocations, with Invalid %v, and without Retry %v", with, asked, without)
	}
}

// A message in a batch costs two more allocations, its BatchMessage and the channel for its answer, and no goroutine.
func TestABatchMessageAllocatesLittle(t *testing.T) {
	const size = 100
	before, most := 0, 0
	allocs := func(h message.HandlerFunc) float64 {
		q := billing(t, nil)
		h = middleware.Retry()(h)
		in, out := make(chan *message.Message), make(chan error, size)
		for range size {
			go func() {
				for msg := range in {
					_, err := h(msg)
					msg.Ack()
					out <- err
				}
			}()
		}
		defer close(in)
		before = 0
		return testing.AllocsPerRun(50, func() {
			for range size {
				in <- q.Deliver()
			}
			for range size {
				if err := <-out; err != nil {
					t.Error(err)
				}
			}
			q.WaitSettled(size)
			before = max(before, runtime.NumGoroutine())
		})
	}
	alone := allocs(succeed)
	batched := allocs(noPublish(must(middleware.Batch(redeliver.BatchConfig{Size: size, Timeout: hour}, func(context.Context, *middleware.MessageBatch) error {
		most = max(most, runtime.NumGoroutine())
		return nil
	}))))
	// A batch has a few allocations itself, and other tests may allocate at the same time.
	if batched > alone+2.9*size {
		t.Errorf("%d messages cost %v allocations, and %v in a batch", size, alone, batched)
	}
	if most > before+size/2 {
		t.Errorf("%d goroutines while a batch runs, and %d when it is done", most, before)
	}
}

// Many messages need no goroutine each, only the engine's workers, and leave no memory behind.
func TestAttemptsLeaveNothingBehind(t *testing.T) {
	q, h := billing(t, nil), middleware.Retry()(succeed)
	objects := func(n int) uint64 {
		for range n {
			handleOne(t, q, h)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	objects(10)
	goroutines, before := runtime.NumGoroutine(), objects(1)
	after := objects(5000)
	if after > before+2500 || runtime.NumGoroutine() > goroutines+10 {
		t.Errorf("%d objects and %d goroutines remain of 5000 attempts", after-before, runtime.NumGoroutine()-goroutines)
	}
}

func BenchmarkRetrySuccess(b *testing.B) {
	q, h := billing(b, nil), middleware.Retry()(succeed)
	b.ReportAllocs()
	for b.Loop() {
		handleOne(b, q, h)
	}
}

// BenchmarkRouter measures a message in a Router, 200 at once.
func BenchmarkRouter(b *testing.B) {
	for name, h := range map[string]message.NoPublishHandlerFunc{
		"alone":   func(*message.Message) error { return nil },
		"fails":   func(*message.Message) error { return errHandler },
		"batches": must(middleware.Batch(redeliver.BatchConfig{Size: 100, Timeout: ms}, func(context.Context, *middleware.MessageBatch) error { return nil })),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			q := billing(b, nil)
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			if err != nil {
				b.Fatal(err)
			}
			router.AddMiddleware(middleware.Retry())
			router.AddConsumerHandler("charge", "orders", q, h)
			ended := make(chan error, 1)
			go func() { ended <- router.Run(b.Context()) }()
			<-router.Running()
			b.ResetTimer()
			go q.Put(b.N)
			q.WaitSettled(b.N)
			b.StopTimer()
			if err := errors.Join(router.Close(), <-ended); err != nil {
				b.Error(err)
			}
		})
	}
}
