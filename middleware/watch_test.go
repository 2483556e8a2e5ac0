package middleware_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// Attempts of one timeout that begin one after another expire one after another,
// each at its own time; those that answer are passed over.
func TestTimeoutsExpireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		start := time.Now()
		release := make(chan struct{})
		var mu sync.Mutex
		ends := map[int]time.Duration{}
		h := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			i, _ := strconv.Atoi(msg.UUID)
			if i%3 == 0 { // answers within its time
				<-time.After(5 * second)
				return nil, nil
			}
			<-msg.Context().Done()
			mu.Lock()
			ends[i] = time.Since(start)
			mu.Unlock()
			<-release
			return nil, nil
		})
		b := &broker{}
		subs := map[time.Duration]func() *message.Message{}
		for _, timeout := range []time.Duration{10 * second, 12 * second} {
			sub := subscribe(b, redeliver.Policy{Timeout: timeout})
			subs[timeout] = func() *message.Message { return deliver(t.Context(), sub) }
		}
		want := map[int]time.Duration{}
		for i := range n {
			timeout := 10*second + time.Duration(i%2)*2*second
			msg := subs[timeout]()
			msg.UUID = strconv.Itoa(i)
			if i%3 != 0 {
				want[i] = time.Since(start) + timeout
			}
			run(h, msg)
			<-time.After(time.Duration(i%5) * 100 * ms) // some at the same moment
		}
		<-time.After(minute)
		mu.Lock()
		defer mu.Unlock()
		for i, at := range want {
			if ends[i] != at {
				t.Errorf("attempt %d ended at %s, want %s", i, ends[i], at)
			}
		}
		if len(ends) != len(want) || len(b.writes()) != len(want) {
			t.Errorf("%d ended and %d moved on, want %d", len(ends), len(b.writes()), len(want))
		}
		close(release)
	})
}

// The watch sleeps when nothing runs, and wakes up again.
func TestTimeoutAfterAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub := subscribe(b, redeliver.Policy{Timeout: second})
		hang := true
		h := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			if hang {
				<-msg.Context().Done()
			}
			return nil, nil
		})
		for round := range 3 {
			for _, hang = range []bool{false, true} {
				<-time.After(700 * ms) // the timer of the one before is still armed
				start := time.Now()
				if _, err := h(deliver(t.Context(), sub)); err != nil || hang && time.Since(start) != second {
					t.Errorf("round %d: %v after %s", round, err, time.Since(start))
				}
			}
			<-time.After(hour)
		}
		if n := len(b.writes()); n != 3 {
			t.Errorf("%d moved on", n)
		}
	})
}

// Tests may share one Retry, each in a bubble of its own. The first one's timer
// never fired, and nothing timed out in the second.
func TestRetryIsSharedByBubbles(t *testing.T) {
	retry := middleware.Retry()
	for _, takes := range []time.Duration{0, hour} {
		synctest.Test(t, func(t *testing.T) {
			b, start := &broker{}, time.Now()
			h := retry(func(msg *message.Message) ([]*message.Message, error) {
				select {
				case <-msg.Context().Done():
				case <-time.After(takes):
				}
				return nil, nil
			})
			if _, err := h(deliver(t.Context(), subscribe(b, redeliver.Policy{Timeout: minute}))); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != min(takes, minute) {
				t.Errorf("a handler that takes %s and has a minute ended after %s", takes, took)
			}
		})
	}
}

// Many messages cost no goroutine each, and leave nothing behind.
func TestTimeoutsLeaveNothingBehind(t *testing.T) {
	sub := subscribe(&broker{}, redeliver.Policy{Timeout: hour})
	sub.Sink = nil
	h := middleware.Retry()(succeed)
	objects := func(n int) uint64 {
		for range n {
			if _, err := h(deliver(t.Context(), sub)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	objects(10)
	goroutines, before := runtime.NumGoroutine(), objects(1)
	after := objects(5000)
	if after > before+2500 || runtime.NumGoroutine() > goroutines {
		t.Errorf("%d objects and %d goroutines are left of 5000 attempts", after-before, runtime.NumGoroutine()-goroutines)
	}
}

// Handlers that answer at the very moment their time is
// over. Either the answer counts or the time-out, and never both or none.
func TestAnswersAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub := subscribe(b, redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries})
		h := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
			<-time.After(second)
			return []*message.Message{msg}, nil
		})
		const n = 200
		answers := make([]<-chan answer, n)
		for i := range answers {
			answers[i] = run(h, deliver(t.Context(), sub))
		}
		handled := 0
		for _, c := range answers {
			if a := <-c; a.err != nil {
				t.Error(a.err)
			} else if a.produced != nil {
				handled++
			}
		}
		if buried := len(b.writes()); handled+buried != n {
			t.Errorf("%d handled and %d buried of %d", handled, buried, n)
		}
	})
}

// A stuck handler goes on changing its message while the watch moves it on: the
// race detector sees whether they share anything.
func TestStuckHandlerSharesNothingWithTheWatch(t *testing.T) {
	b := &broker{}
	sub := subscribe(b, redeliver.Policy{Timeout: 5 * ms, Invalid: func(m redeliver.Message) error {
		_ = m.Headers.Get("tenant")
		return nil
	}})
	msg := deliver(t.Context(), sub)
	moved := make(chan struct{})
	tries := 0
	done := run(middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		for tries++; ; {
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
	if st := b.only(t, "level"); st.Attempts != 1 || st.ID != "orders/0/1" {
		t.Errorf("written as %+v", st)
	}
}

// What happens to a message is the same whether somebody looks on or not.
func TestSameWithoutASink(t *testing.T) {
	handlers := map[string]message.HandlerFunc{
		"success":   returns(nil),
		"error":     returns(errHandler),
		"permanent": returns(redeliver.Permanent(errHandler)),
		"postpone":  returns(redeliver.Postpone(errHandler)),
		"panic":     func(*message.Message) ([]*message.Message, error) { panic("boo") },
		"prompt":    func(m *message.Message) ([]*message.Message, error) { <-m.Context().Done(); return nil, nil },
		"stuck":     func(*message.Message) ([]*message.Message, error) { <-time.After(minute); return nil, nil },
	}
	for name, h := range handlers {
		for _, refused := range []bool{false, true} {
			var outcomes []string
			for _, quiet := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					b := &broker{refuse: func(context.Context, string) error {
						if refused && time.Since(start) < 10*second {
							return errBroker
						}
						return nil
					}}
					sub := subscribe(b, redeliver.Policy{Timeout: second, Immediate: 1})
					if quiet {
						sub.Sink = nil
					}
					got := handle(t, sub, h)
					outcome := fmt.Sprint(got.err, len(got.produced), sub.Stuck.Load(), sub.Gate.Closed())
					for _, w := range b.writes() {
						w.state.LastFailed, w.state.FirstFailed, w.state.Due = time.Time{}, time.Time{}, time.Time{}
						outcome += fmt.Sprintf("; %s %+v", w.where, w.state)
					}
					outcomes = append(outcomes, outcome)
				})
			}
			if len(slices.Compact(outcomes)) != 1 {
				t.Errorf("%s, refused %v: with and without a sink:\n%q", name, refused, outcomes)
			}
		}
	}
}
