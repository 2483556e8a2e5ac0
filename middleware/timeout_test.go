package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestHandlerSeesItsTimeout(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		start := time.Now()
		orders := read(t, b, redelivertest.Config{Policy: redeliver.Policy{Timeout: 30 * second, Backoff: redeliver.Fixed(minute)}})
		produced, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			<-time.After(second) // the deadline is that of the attempt, at any time
			if at, ok := ctx.Deadline(); !ok || !at.Equal(start.Add(30*second)) {
				t.Errorf("deadline %s, %v", at, ok)
			}
			child, cancel := context.WithTimeout(ctx, hour)
			defer cancel()
			<-child.Done()
			// context.DeadlineExceeded is for clients; the cause has the details.
			if ctx.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded {
				t.Errorf("the handler's context ended with %v, and one below it with %v", ctx.Err(), child.Err())
			}
			var cause *redeliver.TimeoutError
			if !errors.As(context.Cause(child), &cause) || cause.After != 30*second || time.Since(start) != 30*second {
				t.Errorf("ended after %s, cause %v", time.Since(start), context.Cause(child))
			}
			return []*message.Message{msg}, child.Err()
		})(orders.deliver("1"))
		if err != nil || produced != nil {
			t.Errorf("%v, %v", produced, err)
		}
		<-time.After(minute / 2)
		waiting := orders.Waiting()
		if len(waiting) != 1 || waiting[0].State.Attempts != 1 || waiting[0].State.ErrorType != "*redeliver.TimeoutError" || !waiting[0].State.Due.Equal(start.Add(90*second)) {
			t.Errorf("waiting: %+v", waiting)
		}
		if got := kinds(orders.reported.list()); !slices.Equal(got, []string{"Attempted", "RetryScheduled"}) {
			t.Errorf("%q: the handler returned at once, so it is not stuck", got)
		}
		if a := only[redeliver.Attempted](orders.reported.list())[0]; !a.Start.Equal(start) || a.Took != 30*second {
			t.Errorf("from %s, took %s", a.Start.Sub(start), a.Took)
		}
	})
}

func TestNoTimeout(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: redeliver.NoTimeout}}).
			Handle("orders", func(msg *message.Message) error {
				if at, ok := msg.Context().Deadline(); ok {
					t.Errorf("deadline %s", at)
				}
				<-time.After(1000 * hour)
				return msg.Context().Err()
			})
		b.Publish("orders", published("1"))
		if got := orders.Outcome("1"); !got.Committed || got.Took != 1000*hour || len(got.Attempts) != 1 {
			t.Error(got)
		}
	})
}

// When a handler does not return, its message moves on, and the handler is counted as stuck until it returns. Its
// answer is ignored.
func TestHandlerThatNeverReturns(t *testing.T) {
	for _, late := range []error{nil, errHandler} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			orders := read(t, b, redelivertest.Config{Policy: redeliver.Policy{Timeout: second, Backoff: redeliver.Fixed(24 * hour)}})
			release := make(chan struct{})
			restore := orders.RefuseWrites(redelivertest.PlaceLevels)
			msg := orders.deliver("1")
			done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
				<-release
				return []*message.Message{msg}, late
			}), msg)
			<-time.After(20 * second)
			if reported := kinds(orders.reported.list()); slices.Contains(reported, "RetryScheduled") || len(orders.Waiting()) != 0 {
				t.Errorf("reported %q before the broker has confirmed", reported)
			}
			restore()
			<-msg.Acked() // so that no goroutine waits for the handler
			<-time.After(minute)
			if w := orders.Waiting(); len(w) != 1 || w[0].State.Attempts != 1 {
				t.Errorf("waiting: %+v", w)
			}
			<-time.After(hour)
			stuck := only[redeliver.HandlerStuck](orders.reported.list())
			if len(stuck) != 1 || stuck[0].Stuck != 1 || stuck[0].Timeout != second || stuck[0].State.Attempt() != 1 {
				t.Errorf("reported %+v", stuck)
			}
			close(release)
			if got := <-done; got.err != nil || got.produced != nil {
				t.Errorf("the late answer is not ignored: %v, %v", got.produced, got.err)
			}
			reported := only[redeliver.LateAnswer](orders.reported.list())
			if len(reported) != 1 || reported[0].Stuck != 0 || reported[0].Err != late { //nolint:errorlint // the identical error
				t.Errorf("reported %+v", reported)
			}
			if len(orders.Waiting()) != 1 {
				t.Errorf("%d wait after the late answer", len(orders.Waiting()))
			}
		})
	}
}

// When a handler returns as soon as its time is over, the Router acks the message at once. The subscriber must not ack it before the
// broker has confirmed the copy, because the process may die meanwhile.
func TestPromptHandlerIsNotAckedBeforeTheConfirmation(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		cfg := redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: second}}
		c := b.Open(cfg)
		orders := c.Handle("orders", func(msg *message.Message) error {
			<-msg.Context().Done()
			return nil
		})
		restore := orders.RefuseWrites(redelivertest.PlaceLevels)
		b.Publish("orders", published("1"))
		<-time.After(20 * second)
		c.Kill()
		restore()
		runs := 0
		b.Open(cfg).Handle("orders", func(msg *message.Message) error {
			st, _ := redeliver.FromContext(msg.Context())
			if runs++; st.Attempt() != 1 {
				t.Errorf("attempt %d", st.Attempt())
			}
			return nil
		})
		if got := orders.Outcome("1"); !got.Committed || runs != 1 {
			t.Errorf("%d runs, %s", runs, got)
		}
	})
}

// Stuck handlers are counted for each subscription, not for each Retry.
func TestStuckIsCountedPerSubscription(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		reported := &events{}
		c := b.Open(redelivertest.Config{Group: "billing", Sink: reported, Policy: redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries}})
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		router.AddMiddleware(middleware.Retry())
		release := make(chan struct{})
		for i, topic := range []string{"orders", "letters"} {
			router.AddConsumerHandler(topic, topic, c.Subscriber(), func(*message.Message) error { <-release; return nil })
			for n := range i + 1 {
				b.Publish(topic, message.NewMessage(fmt.Sprint(topic, n), nil))
			}
		}
		b.Start(router)
		<-time.After(minute)
		close(release)
		b.Wait()
		stuck := map[string][]int64{}
		for _, e := range only[redeliver.HandlerStuck](reported.list()) {
			stuck[e.State.Origin] = append(stuck[e.State.Origin], e.Stuck)
		}
		if !slices.Equal(stuck["orders"], []int64{1}) || !slices.Equal(stuck["letters"], []int64{1, 2}) {
			t.Errorf("stuck: %v", stuck)
		}
	})
}

// Attempts with one timeout expire in the order in which they began, each at its own time, except those that have answered. That works
// again after a time in which nothing ran.
func TestTimeoutsExpireInOrder(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		const n = 60
		var mu sync.Mutex
		ends := map[string]time.Duration{}
		release := make(chan struct{})
		timeouts := map[string]time.Duration{"orders": 10 * second, "letters": 12 * second}
		for topic, timeout := range timeouts {
			b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: timeout, MaxRetries: redeliver.NoRetries, Outage: redeliver.Outage{Off: true}}}).
				Handle(topic, func(msg *message.Message) error {
					if strings.HasPrefix(msg.UUID, "quick") { // answers within its time
						<-time.After(5 * second)
						return nil
					}
					<-msg.Context().Done()
					mu.Lock()
					ends[msg.UUID] = b.Elapsed()
					mu.Unlock()
					<-release
					return nil
				})
		}
		want := map[string]time.Duration{}
		for round := range 3 {
			for i := range n {
				topic, id := []string{"orders", "letters"}[i%2], fmt.Sprint(round, "/", i)
				if i%3 == 0 {
					id = "quick" + id
				} else {
					want[id] = b.Elapsed() + timeouts[topic]
				}
				b.Publish(topic, message.NewMessage(id, nil))
				<-time.After(time.Duration(i%5) * 100 * ms) // some at the same moment
			}
			<-time.After(hour)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(ends) != len(want) {
			t.Errorf("%d ended, want %d", len(ends), len(want))
		}
		for id, at := range want {
			if ends[id] != at {
				t.Errorf("attempt %s ended at %s, want %s", id, ends[id], at)
			}
		}
		close(release)
	})
}

// When a handler answers at the moment its time is over, either the answer or the timeout counts, never both or none.
func TestAnswersAtTheLastMoment(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		const n = 200
		orders := b.Open(redelivertest.Config{Group: "billing", MaxInFlight: n, Policy: redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries, Outage: redeliver.Outage{Off: true}}}).
			Handle("orders", func(*message.Message) error { <-time.After(second); return nil })
		for i := range n {
			b.Publish("orders", published(fmt.Sprint(i)))
		}
		all := orders.Outcomes()
		for _, got := range all {
			if len(got.Attempts) != 1 || got.Committed == (got.State.Reason == redeliver.ReasonTimeout) {
				t.Error(got)
			}
		}
		if len(all) != n {
			t.Errorf("%d of %d messages", len(all), n)
		}
	})
}

// A stuck handler changes its message while the message moves on. The race detector finds shared data.
func TestStuckHandlerSharesNothingWithTheWatch(t *testing.T) {
	b := redelivertest.New(t)
	orders := read(t, b, redelivertest.Config{Policy: redeliver.Policy{Timeout: 5 * ms, MaxRetries: redeliver.NoRetries, Outage: redeliver.Outage{Off: true}, Invalid: func(m redeliver.Message) error {
		_ = m.Headers.Get("tenant")
		return nil
	}}})
	msg := orders.deliver("1")
	moved := make(chan struct{})
	done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		for tries := 0; ; tries++ {
			copy(msg.Payload, "ruined!")
			msg.Metadata.Set("tenant", strconv.Itoa(tries))
			msg.UUID = "another"
			msg.SetContext(t.Context())
			select {
			case <-moved:
				return nil, errHandler
			default:
				runtime.Gosched()
			}
		}
	}), msg)
	<-msg.Acked()
	close(moved)
	if a := <-done; a.err != nil {
		t.Error(a.err)
	}
	if dead := orders.DeadLetters(); len(dead) != 1 || dead[0].State.ID != "1" || !dead[0].Message.Equals(published("1")) {
		t.Errorf("dead letters %+v", dead)
	}
}

// Messages are handled in the same way with and without a sink.
func TestSameWithoutASink(t *testing.T) {
	handlers := map[string]message.HandlerFunc{
		"success":   succeed,
		"error":     func(*message.Message) ([]*message.Message, error) { return nil, errHandler },
		"permanent": func(*message.Message) ([]*message.Message, error) { return nil, redeliver.Permanent(errHandler) },
		"postpone":  func(*message.Message) ([]*message.Message, error) { return nil, redeliver.Postpone(errHandler) },
		"panic":     func(*message.Message) ([]*message.Message, error) { panic("boo") },
		"prompt":    func(m *message.Message) ([]*message.Message, error) { <-m.Context().Done(); return nil, nil },
		"stuck":     func(*message.Message) ([]*message.Message, error) { <-time.After(minute); return nil, nil },
	}
	for name, h := range handlers {
		for _, refused := range []bool{false, true} {
			var outcomes []string
			for _, sink := range []redeliver.Sink{nil, &events{}} {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					q := enginetest.New(redeliver.Policy{Timeout: second})
					q.Sub.Sink = sink
					q.Refuse = func() error {
						if refused && time.Since(start) < 10*second {
							return errBroker
						}
						return nil
					}
					q.Start(t)
					msg := q.Deliver()
					produced, err := middleware.Retry()(h)(msg)
					msg.Ack()
					q.WaitSettled(1)
					synctest.Wait()
					outcome := fmt.Sprint(err, len(produced), q.Sub.Gate.Closed())
					for _, w := range q.Written() {
						w.State.LastFailed, w.State.FirstFailed, w.State.Due = time.Time{}, time.Time{}, time.Time{}
						outcome += fmt.Sprintf("; %d %+v", w.To, w.State)
					}
					outcomes = append(outcomes, outcome)
				})
			}
			if len(slices.Compact(outcomes)) != 1 {
				t.Errorf("%s, refused %v: without and with a sink:\n%q", name, refused, outcomes)
			}
		}
	}
}
