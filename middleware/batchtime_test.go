package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// The Timeout and the times of the reported attempts count from the call of the batch function, not from the arrival of the messages.
func TestBatchTimeoutCountsFromTheStart(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		start := time.Now()
		orders := index(b, redeliver.Policy{Timeout: 10 * second, MaxRetries: redeliver.NoRetries}, redeliver.BatchConfig{Size: 3, Timeout: hour},
			func(ctx context.Context, mb *middleware.MessageBatch) error {
				contexts := []context.Context{ctx}
				for _, m := range mb.Messages {
					contexts = append(contexts, m.Context())
				}
				for _, in := range contexts {
					if at, ok := in.Deadline(); !ok || time.Until(at) != 10*second {
						t.Errorf("deadline %s after now, %v", time.Until(at), ok)
					}
				}
				<-time.After(9 * second)
				if mb.Messages[0].Record.UUID == "a" {
					return ctx.Err()
				}
				<-ctx.Done()
				cause, ok := errors.AsType[*redeliver.TimeoutError](context.Cause(ctx))
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !ok || cause.After != 10*second {
					t.Errorf("ended with %v, %v", ctx.Err(), context.Cause(ctx))
				}
				return nil // too late
			})
		publish(b, "a")
		<-time.After(40 * minute)
		publish(b, "b")
		got := orders.Outcome("a")
		if !got.Committed || got.Attempts[0].Start.Sub(start) != hour || got.Attempts[0].Took != 9*second {
			t.Errorf("began after %s, %s", got.Attempts[0].Start.Sub(start), got)
		}
		publish(b, "c")
		<-time.After(10 * minute)
		publish(b, "d")
		for _, id := range []string{"c", "d"} {
			if got := orders.Outcome(id); got.State.Reason != redeliver.ReasonTimeout || got.Attempts[0].Took != 10*second {
				t.Error(got)
			}
		}
	})
}

// A message that waits for its batch has no deadline yet.
func TestBatchDeadlineWhileGathering(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		seen := make(chan context.Context, 1)
		peek := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				seen <- msg.Context()
				return h(msg)
			}
		}
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: minute}}).Handle("documents",
			must(middleware.Batch(redeliver.BatchConfig{Timeout: hour}, func(context.Context, *middleware.MessageBatch) error { return nil })), peek)
		publish(b, "a")
		if at, ok := (<-seen).Deadline(); ok {
			t.Errorf("a deadline of %s", at)
		}
		b.Wait()
	})
}

// When a function never returns, its messages move on, and the next batch runs beside it. Each of its messages is reported as stuck.
func TestBatchFunctionThatHangs(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b, sorted: true}
		release := make(chan struct{})
		orders := index(b, redeliver.Policy{Timeout: 10 * second, Backoff: redeliver.Fixed(minute)}, redeliver.BatchConfig{Size: 3, Timeout: second},
			func(_ context.Context, mb *middleware.MessageBatch) error {
				l.add(mb)
				if mb.Messages[0].Record.UUID == "a" && mb.Messages[0].State().Attempt() == 1 {
					mb.Messages[1].Ack()
					<-release
					if mb.Messages[0].Ack() || mb.Messages[1].Retry() {
						t.Error("a late Ack counts")
					}
				}
				return nil
			})
		publish(b, "a", "b", "c", "d")
		b.Wait()
		l.want(t, "0s a b c", "11s d", "1m10s a c") // the retries are a full batch
		count := func() (stuck, late int) {
			for _, e := range orders.Events() {
				switch e.(type) {
				case redeliver.HandlerStuck:
					stuck++
				case redeliver.LateAnswer:
					late++
				}
			}
			return stuck, late
		}
		if stuck, late := count(); stuck != 2 || late != 0 {
			t.Errorf("%d stuck, %d late", stuck, late)
		}
		close(release)
		synctest.Wait()
		if stuck, late := count(); stuck != 2 || late != 2 {
			t.Errorf("%d stuck, %d late after the end", stuck, late)
		}
		for id, attempts := range map[string]int{"a": 2, "b": 1, "c": 2, "d": 1} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != attempts {
				t.Error(got)
			}
		}
	})
}

// The context of a function that continues after it has answered all its messages also ends with its Timeout. No
// timeout of a message would end it.
func TestBatchFunctionThatContinuesAfterItsLastAnswer(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		ended := make(chan error, 1)
		orders := index(b, redeliver.Policy{Timeout: 10 * second}, redeliver.BatchConfig{Size: 2},
			func(ctx context.Context, mb *middleware.MessageBatch) error {
				for _, m := range mb.Messages {
					m.Ack()
				}
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil
			})
		publish(b, "a", "b")
		b.Wait()
		cause, ok := errors.AsType[*redeliver.TimeoutError](<-ended)
		if !ok || cause.After != 10*second || b.Elapsed() != 10*second {
			t.Errorf("ended with %v after %s", cause, b.Elapsed())
		}
		for _, id := range []string{"a", "b"} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != 1 {
				t.Error(got)
			}
		}
	})
}

// The messages fail when the function calls runtime.Goexit.
func TestGoexitFailsABatch(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := index(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 2}, func(_ context.Context, mb *middleware.MessageBatch) error {
			if mb.Messages[0].State().Attempt() == 1 {
				mb.Messages[0].Ack()
				runtime.Goexit()
			}
			return nil
		})
		publish(b, "a", "b")
		if got := orders.Outcome("b"); !got.Committed || len(got.Attempts) != 2 || !errors.Is(got.Attempts[0].Err, redeliver.ErrPanic) {
			t.Error(got)
		}
		if got := orders.Outcome("a"); !got.Committed || len(got.Attempts) != 1 {
			t.Error(got)
		}
	})
}

// An answer after the end of the batch changes nothing, and is reported.
func TestBatchSettledAfterItsEnd(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var kept *middleware.MessageBatch
		orders := index(b, redeliver.Policy{Backoff: redeliver.Fixed(minute)}, redeliver.BatchConfig{Size: 2}, func(_ context.Context, mb *middleware.MessageBatch) error {
			if kept == nil {
				kept = mb
				mb.Messages = slices.Clone(mb.Messages)
				return errHandler
			}
			return nil
		})
		publish(b, "a", "b")
		b.Wait()
		if kept.Messages[0].Ack() || kept.Messages[1].Reject("no") || kept.AckAll() || kept.RetryAllAfter(hour) {
			t.Error("it counts")
		}
		var late []string
		for _, e := range orders.Events() {
			if e, ok := e.(redeliver.LateAnswer); ok && errors.Is(e.Err, redeliver.ErrBatchEnded) {
				late = append(late, e.State.ID+": "+e.Err.Error())
			}
		}
		want := []string{"a: settled after the end of its batch", "b: settled after the end of its batch: rejected: no"}
		if !slices.Equal(late, want) {
			t.Errorf("reported %q", late)
		}
		for _, id := range []string{"a", "b"} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != 2 {
				t.Error(got)
			}
		}
	})
}

// A message that is lost while it waits, or whose context ends, is not in the batch and is not acked.
func TestAMessageThatIsLostLeavesItsBatch(t *testing.T) {
	for how, failures := range map[string]int{"lost": 0, "a context in between": 1} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			q := enginetest.New(redeliver.Policy{}).Start(t)
			var in []*message.Message
			h := middleware.Retry()(noPublish(must(middleware.Batch(redeliver.BatchConfig{Timeout: minute}, func(_ context.Context, mb *middleware.MessageBatch) error {
				for _, m := range mb.Messages {
					in = append(in, m.Record)
				}
				return nil
			}))))
			gone, other := q.Deliver(), q.Deliver()
			ctx, cancel := context.WithCancel(gone.Context())
			defer cancel()
			gone.SetContext(ctx)
			left, stayed := run(h, gone), run(h, other)
			<-time.After(second)
			if how == "lost" {
				q.Abandon(engine.ErrLost)
			} else {
				cancel()
			}
			got := <-left
			synctest.Wait()
			if after := time.Since(start) - second; after < 0 || after > 50*ms || (how == "lost") != errors.Is(got.err, middleware.ErrAbandoned) || len(q.Written()) != failures {
				t.Errorf("%s: the message left after %s, %v, written %+v", how, time.Since(start), got.err, q.Written())
			}
			if got := <-stayed; got.err != nil || !slices.Equal(in, []*message.Message{other}) || time.Since(start) != minute {
				t.Errorf("%s: %v, in the batch: %v after %s", how, got.err, in, time.Since(start))
			}
			other.Ack()
		})
	}
}

type valueKey struct{}

// The function's context ends when the last of its messages is lost to this process.
func TestBatchContextOfLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := enginetest.New(redeliver.Policy{})
		q.Values = context.WithValue(t.Context(), valueKey{}, "a tracer")
		q.Start(t)
		h := middleware.Retry()(noPublish(must(middleware.Batch(redeliver.BatchConfig{Size: 3}, func(ctx context.Context, _ *middleware.MessageBatch) error {
			if ctx.Value(valueKey{}) != "a tracer" {
				t.Error("the values of Subscribe's context are missing")
			}
			if st, ok := redeliver.FromContext(ctx); ok {
				t.Errorf("the batch's context has the state of a message: %+v", st)
			}
			<-ctx.Done()
			if time.Since(start) != 2*second || !errors.Is(context.Cause(ctx), engine.ErrLost) {
				t.Errorf("ended after %s with %v", time.Since(start), context.Cause(ctx))
			}
			return nil
		}))))
		other := q.Open()
		answers := []<-chan answer{run(h, q.Deliver()), run(h, q.Deliver()), run(h, other.Deliver())}
		<-time.After(second)
		q.Lose()
		<-time.After(second)
		other.Lose()
		for _, a := range answers {
			<-a
		}
	})
}

// On shutdown the waiting messages run at once, and none is lost or delivered again.
func TestWaitingMessagesRunOnShutdown(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		client := b.Open(redelivertest.Config{Group: "search"})
		orders := client.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 2, Timeout: hour}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			<-time.After(3 * second)
			return nil
		})))
		publish(b, "a", "b", "c", "d", "e")
		<-time.After(second) // a and b run, the others wait
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if b.Elapsed() != 9*second { // three batches, and DrainTimeout is 10 s
			t.Errorf("closed after %s", b.Elapsed())
		}
		l.want(t, "0s a b", "3s c d", "6s e")
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != 1 {
				t.Error(got)
			}
		}
	})
}

// A waiting batch runs on shutdown even without another event.
func TestAWaitingBatchRunsOnShutdown(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		client := b.Open(redelivertest.Config{Group: "search"})
		orders := client.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Timeout: hour}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			return nil
		})))
		publish(b, "a", "b")
		<-time.After(minute)
		if err := client.Close(t.Context()); err != nil || b.Elapsed() != minute {
			t.Errorf("%v after %s", err, b.Elapsed())
		}
		l.want(t, "1m0s a b")
		if got := orders.Outcome("b"); !got.Committed {
			t.Error(got)
		}
	})
}

// Messages that cannot run before the drain timeout stay unacked for the next member.
func TestMessagesPastTheDrainTimeoutStayUnacked(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b, sorted: true}
		config := redelivertest.Config{Group: "search", DrainTimeout: 5 * second}
		fn := func(ctx context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			select {
			case <-time.After(minute):
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		client := b.Open(config)
		orders := client.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 2, Timeout: hour}, fn)))
		publish(b, "a", "b", "c")
		if err := client.Close(t.Context()); err != nil || b.Elapsed() != 5*second {
			t.Errorf("%v after %s", err, b.Elapsed())
		}
		b.Open(config).Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 3, Timeout: hour}, fn)))
		for _, id := range []string{"a", "b", "c"} {
			if got := orders.Outcome(id); !got.Committed || got.State.Attempts != 0 {
				t.Error(got)
			}
		}
		l.want(t, "0s a b", "5s a b c")
	})
}

// A message that runs alone does not wait for others.
func TestASuspectIsABatchOfItsOwn(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b, sorted: true}
		killer := make(chan struct{})
		open := func() (*redelivertest.Client, *redelivertest.Subscription) {
			client := b.Open(redelivertest.Config{Group: "search"})
			return client, client.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 3}, func(ctx context.Context, mb *middleware.MessageBatch) error {
				l.add(mb)
				if slices.ContainsFunc(mb.Messages, func(m *middleware.BatchMessage) bool { return m.Record.UUID == "killer" }) {
					killer <- struct{}{}
					<-ctx.Done()
				}
				return nil
			})))
		}
		client, orders := open()
		publish(b, "a", "killer", "b")
		for range redeliver.DefaultMaxCrashes + 1 {
			<-killer
			synctest.Wait() // the broker has recorded the delivery
			client.Kill()
			client, _ = open()
		}
		got := orders.Outcome("killer")
		if got.State.Reason != redeliver.ReasonCrashed {
			t.Error(got)
		}
		l.want(t, "0s a b killer", "0s a", "0s killer", "0s b", "0s killer", "0s killer")
	})
}

// Many goroutines answer some messages while an error, a timeout or AckAll ends the others: each message has one answer, and the results
// of the calls agree with it.
func TestEveryMessageOfABatchHasOneAnswer(t *testing.T) {
	t.Parallel()
	b := redelivertest.New(t)
	client := b.Open(redelivertest.Config{
		Group: "search", Policy: redeliver.Policy{Timeout: 20 * ms, MaxRetries: 1, Backoff: redeliver.Fixed(ms)},
	})
	var mu sync.Mutex
	said := map[string]string{}
	var calls sync.WaitGroup
	orders := client.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 7, Timeout: 5 * ms, Concurrency: 3}, func(_ context.Context, mb *middleware.MessageBatch) error {
		calls.Add(1)
		defer calls.Done()
		var all sync.WaitGroup
		for i, m := range mb.Messages {
			if m.State().Attempt() > 1 {
				continue
			}
			for _, call := range []string{"ack", "reject"} {
				all.Go(func() {
					if i%2 == 0 {
						<-time.After(time.Duration(15+i) * ms) // about the Timeout
					}
					var counts bool
					if call == "ack" {
						counts = m.Ack()
					} else {
						counts = m.Reject("race")
					}
					mu.Lock()
					defer mu.Unlock()
					_, _ = m.Context().Deadline() // call every method that a settled message allows
					if counts {
						if said[m.Record.UUID] != "" {
							t.Errorf("two answers for %s", m.Record.UUID)
						}
						said[m.Record.UUID] = call
					}
				})
			}
		}
		all.Wait()
		return nil
	})))
	const n = 300
	for i := range n {
		b.Publish("documents", message.NewMessage(string(rune('a'+i%26))+time.Duration(i).String(), nil))
	}
	outcomes := orders.Outcomes()
	calls.Wait() // an event may come after the end of its message
	for _, got := range outcomes {
		want := got.Committed && len(got.Attempts) == 1
		switch said[got.ID] {
		case "reject":
			want = got.State.Reason == redeliver.ReasonRejected
		case "": // its time was over; the retry may share its batch with other messages
			want = len(got.Attempts) == 2 && (got.Committed || got.State.Reason == redeliver.ReasonTimeout)
		}
		if !want {
			t.Errorf("said %q: %s", said[got.ID], got)
		}
	}
	if len(outcomes) != n {
		t.Errorf("%d of %d messages", len(outcomes), n)
	}
}

// A middleware within Retry may handle a message again, in another batch. An answer in the first batch must not count as the answer
// of the second one too: with OrderBlocking a function that hangs there would keep its message forever.
func TestASecondBatchOfAnAttemptHasItsOwnTimeout(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		release := make(chan struct{})
		twice := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				if produced, err := h(msg); err == nil {
					return produced, nil
				}
				return h(msg)
			}
		}
		calls := 0
		fn := func(_ context.Context, mb *middleware.MessageBatch) error {
			if calls++; calls == 1 {
				mb.Messages[0].Answer(errors.New("no connection"))
				return nil
			}
			<-release
			return nil
		}
		orders := b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{
			Timeout: 10 * second, MaxRetries: redeliver.NoRetries, Order: redeliver.OrderBlocking,
		}}).Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 1, Timeout: second}, fn)), twice)
		publish(b, "a")
		<-time.After(minute)
		if got := orders.Outcome("a"); got.State.Reason != redeliver.ReasonTimeout || calls != 2 {
			t.Errorf("%d calls, %s", calls, got)
		}
		close(release)
	})
}
