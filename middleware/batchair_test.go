package middleware_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// aired is a message of a broadcast consumer.
type aired string

func (id aired) Message() (*message.Message, error) {
	return message.NewMessage(string(id), []byte(id)), nil
}

// ether runs a handler, many messages at once, for a broadcast consumer until stop is
// called or the test's end, and returns what delivers one.
func ether(t *testing.T, p redeliver.Policy, h message.NoPublishHandlerFunc, inFlight int) (b *broker, put func(ids ...string), stop func()) {
	t.Helper()
	b = &broker{}
	var ps redeliver.Problems
	air := delayqueue.NewBroadcast(t.Context(), &delayqueue.Subscription{
		Origin: "prices", Policy: delayqueue.BroadcastPolicy(&ps, "Policy", p), Sink: b, MaxInFlight: inFlight,
	})
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { air.Run(ctx, time.Minute, func(ctx context.Context) { <-ctx.Done() }) })
	all.Go(func() {
		for msg := range air.Out {
			all.Go(func() {
				if h(msg) == nil {
					msg.Ack()
				} else {
					msg.Nack()
				}
			})
		}
	})
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	put = func(ids ...string) {
		for _, id := range ids {
			air.Deliver(ctx, &delayqueue.Aired{Record: aired(id), ID: id, Done: func(bool) {}})
			synctest.Wait()
		}
	}
	return b, put, stop
}

// what a broadcast consumer has told of its messages, in any order.
func airs(b *broker) (well, ill []string) {
	for _, e := range events[redeliver.Committed](b) {
		well = append(well, e.State.ID)
	}
	for _, e := range events[redeliver.BroadcastFailed](b) {
		ill = append(ill, e.State.ID+" "+string(e.State.Reason))
	}
	slices.Sort(well)
	slices.Sort(ill)
	return well, ill
}

// The policy's Timeout holds for a batch of a broadcast consumer as for any: it counts
// from the start of the function, however long its messages have waited, and then they
// have failed, and the next batch runs.
func TestBatchOfABroadcastHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		release := make(chan struct{})
		defer close(release)
		var mu sync.Mutex
		var began []time.Duration
		h := middleware.Batch(middleware.BatchConfig{Size: 2, Timeout: hour}, func(ctx context.Context, mb *middleware.MessageBatch) error {
			mu.Lock()
			began = append(began, time.Since(start))
			mu.Unlock()
			for _, in := range []context.Context{ctx, mb.Messages[0].Context(), mb.Messages[1].Context()} {
				if at, ok := in.Deadline(); !ok || time.Until(at) != 10*second {
					t.Errorf("a deadline in %s, %v", time.Until(at), ok)
				}
			}
			switch mb.Messages[0].UUID {
			case "stuck":
				mb.Messages[1].Ack()
				<-ctx.Done()
				if cause, ok := errors.AsType[*redeliver.TimeoutError](context.Cause(ctx)); !ok || cause.After != 10*second {
					t.Errorf("ended with %v", context.Cause(ctx))
				}
				<-release
				if mb.Messages[0].Ack() {
					t.Error("too late, and it counts")
				}
			case "all":
				mb.AckAll()
				<-release
			case "slow":
				<-time.After(9 * second)
				return errHandler
			}
			return nil
		})
		b, put, _ := ether(t, redeliver.Policy{Timeout: 10 * second}, h, 4)
		put("stuck")
		<-time.After(40 * minute) // it waits, and its clock stands still
		put("acked")
		<-time.After(minute)
		put("all", "acks")
		<-time.After(minute)
		put("slow", "too")
		<-time.After(minute)
		put("last", "one")
		synctest.Wait()
		well, ill := airs(b)
		if want := []string{"acked", "acks", "all", "last", "one"}; !slices.Equal(well, want) {
			t.Errorf("well %q, want %q", well, want)
		}
		if want := []string{"slow exhausted", "stuck timeout", "too exhausted"}; !slices.Equal(ill, want) {
			t.Errorf("ill %q, want %q", ill, want)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{40 * minute, 41 * minute, 42 * minute, 43 * minute}; !slices.Equal(began, want) {
			t.Errorf("batches after %s, want %s", began, want)
		}
	})
}

// A message that its policy allows a try at once comes in another batch, under a clock of
// its own; and one that waits for a batch when the consumer ends is in one.
func TestBatchOfABroadcastTriesAgainAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := make(map[string]int)
		h := middleware.Batch(middleware.BatchConfig{Size: 2, Timeout: minute}, func(_ context.Context, mb *middleware.MessageBatch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range mb.Messages {
				if runs[m.UUID]++; m.State().Attempt() != runs[m.UUID] {
					t.Errorf("run %d of %s is attempt %d", runs[m.UUID], m.UUID, m.State().Attempt())
				}
				if m.UUID == "again" && runs[m.UUID] == 1 {
					m.Retry()
				}
			}
			return nil
		})
		b, put, stop := ether(t, redeliver.Policy{Immediate: 1, Timeout: 10 * second}, h, 4)
		put("again", "fine")
		<-time.After(hour)
		put("left")
		stop()
		well, ill := airs(b)
		if want := []string{"again", "fine", "left"}; !slices.Equal(well, want) || len(ill) > 0 || runs["again"] != 2 {
			t.Errorf("well %q, ill %q, runs %v", well, ill, runs)
		}
	})
}

// A message's context may have the values of its publisher's, which is a handler under
// Retry: an in-process Pub/Sub can keep that. A batch took the publisher's attempt for the
// message's own, and gathered with the publisher's subscription.
func TestBatchIgnoresTheAttemptOfThePublisher(t *testing.T) {
	type tracer struct{}
	for name, retry := range map[string]message.HandlerMiddleware{
		"alone": func(h message.HandlerFunc) message.HandlerFunc { return h },
		"retry": middleware.Retry(middleware.AllowBroadcast),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var of []string
				h := retry(func(msg *message.Message) ([]*message.Message, error) {
					msg.SetContext(context.WithValue(msg.Context(), tracer{}, "its own")) // a middleware in between
					return nil, middleware.Batch(middleware.BatchConfig{Size: 1}, func(_ context.Context, mb *middleware.MessageBatch) error {
						of = append(of, mb.Origin+" "+mb.Group+" "+mb.Messages[0].State().ID)
						return nil
					})(msg)
				})
				air := &broker{}
				var ps redeliver.Problems
				b := delayqueue.NewBroadcast(t.Context(), &delayqueue.Subscription{
					Origin: "prices", Policy: delayqueue.BroadcastPolicy(&ps, "Policy", redeliver.Policy{}), Sink: air, MaxInFlight: 1,
				})
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() { b.Run(ctx, minute, func(ctx context.Context) { <-ctx.Done() }) })
				all.Go(func() {
					for msg := range b.Out {
						if _, err := h(msg); err == nil {
							msg.Ack()
						} else {
							msg.Nack()
						}
					}
				})
				defer all.Wait()
				defer cancel()

				publisher := subscribe(&broker{}, redeliver.Policy{Timeout: minute})
				got := handle(t, publisher, func(msg *message.Message) ([]*message.Message, error) {
					done := make(chan struct{})
					b.Deliver(ctx, &delayqueue.Aired{Values: msg.Context(), Record: aired("aired"), ID: "aired", Done: func(bool) { close(done) }})
					<-done
					return nil, nil
				})
				if got.err != nil {
					t.Error(got.err)
				}
				well, ill := airs(air)
				if !slices.Equal(of, []string{"prices  aired"}) || !slices.Equal(well, []string{"aired"}) || len(ill) > 0 {
					t.Errorf("batches of %q; well %q, ill %q", of, well, ill)
				}
			})
		})
	}
}
