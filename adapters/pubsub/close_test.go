package pubsub

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// hangingSubscriber is a subscriber whose broker does not answer. Subscribe returns when the test allows it, even if
// its context has ended.
type hangingSubscriber struct {
	message.Subscriber
	hang    atomic.Int64 // calls before it hangs
	release chan struct{}
	nacked  atomic.Int64 // messages that came back
}

func (s *hangingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if s.hang.Add(-1) >= 0 {
		return s.Subscriber.Subscribe(ctx, topic)
	}
	<-s.release
	in := make(chan *message.Message)
	go func() {
		defer close(in)
		msg := message.NewMessage("late", nil)
		in <- msg
		<-msg.Nacked()
		s.nacked.Add(1)
	}()
	return in, nil
}

// hangingInitializer is a subscriber whose topics are never created.
type hangingInitializer struct {
	message.Subscriber
	release chan struct{}
}

func (s *hangingInitializer) SubscribeInitialize(string) error {
	<-s.release
	return errors.New("given up")
}

// Close does not wait for a first or repeated Subscribe that hangs. Messages that it delivers later are nacked.
func TestCloseDoesNotWaitForHangingSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryBroker().member(t, "billing")
		hanging := &hangingSubscriber{Subscriber: m, release: make(chan struct{})}
		c, err := Open(t.Context(), checkConfig(m, hanging))
		if err != nil {
			t.Fatal(err)
		}
		sub := c.Subscriber()
		begun := make(chan error, 1)
		go func() {
			_, err := sub.Subscribe(t.Context(), "orders")
			begun <- err
		}()
		synctest.Wait()
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		if err := <-begun; err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("it is subscribed: %v", err)
		}
		close(hanging.release)
		synctest.Wait()
		if n := hanging.nacked.Load(); n != 1 {
			t.Errorf("%d messages of a late Subscribe were nacked", n)
		}

		ending := &closingSubscriber{Subscriber: m}
		ending.remaining.Store(1)
		again := &hangingSubscriber{Subscriber: ending, release: make(chan struct{})}
		again.hang.Store(2*defaultMaxInFlight + delayTopics)
		if c, err = Open(t.Context(), checkConfig(m, again)); err != nil {
			t.Fatal(err)
		}
		sub = c.Subscriber()
		out, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Minute) // one channel has ended, and its new Subscribe hangs
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		if _, open := <-out; open {
			t.Error("something was delivered")
		}
		close(again.release)
		synctest.Wait()
		if n := again.nacked.Load(); n != 1 {
			t.Errorf("%d messages of a late repeated Subscribe were nacked", n)
		}
	})
}

// Close does not wait for the creation of topics.
func TestCloseDoesNotWaitForHangingInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryBroker().member(t, "billing")
		hanging := &hangingInitializer{m, make(chan struct{})}
		defer close(hanging.release)
		c, err := Open(t.Context(), checkConfig(m, hanging))
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan error, 1)
		go func() {
			_, err := c.Subscriber().Subscribe(t.Context(), "orders")
			begun <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-begun; !errors.Is(err, mq.ErrClosed) {
			t.Errorf("it is subscribed: %v", err)
		}
	})
}

// panickingSubscriber is a subscriber whose calls panic or end their goroutine.
type panickingSubscriber struct {
	message.Subscriber
	end        func()
	topic      bool         // in SubscribeInitialize instead of Subscribe
	succeeding atomic.Int64 // calls of Subscribe before the panic
}

func (s *panickingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if !s.topic && s.succeeding.Add(-1) < 0 {
		s.end()
	}
	return s.Subscriber.Subscribe(ctx, topic)
}

func (s *panickingSubscriber) SubscribeInitialize(string) error {
	if s.topic {
		s.end()
	}
	return nil
}

// No caller could recover a panic of the user's subscriber in its own goroutine, and runtime.Goexit would leave callers
// waiting. Both are errors.
func TestPanickingSubscriberIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		end  func()
		want string
	}{
		"panics": {func() { panic("no connection") }, "panic: no connection"},
		"exits":  {runtime.Goexit, "called runtime.Goexit"},
	} {
		for _, topic := range []bool{false, true} {
			t.Run(map[bool]string{false: "Subscribe ", true: "the topics "}[topic]+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMemoryBroker().member(t, "billing")
					client, err := Open(t.Context(), checkConfig(m, &panickingSubscriber{Subscriber: m, end: c.end, topic: topic}))
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					_, err = client.Subscriber().Subscribe(ctx, "orders")
					if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "orders") {
						t.Errorf("got %v, want %q", err, c.want)
					}
					if want := name == "panics"; errors.Is(err, redeliver.ErrPanic) != want {
						t.Errorf("%v is a panic: %t", err, !want)
					}
					if err := client.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// If the subscriber panics in a repeated Subscribe, Subscribe is called again.
func TestPanickingSubscriberIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryBroker().member(t, "billing")
		ending := &closingSubscriber{Subscriber: m}
		ending.remaining.Store(1)
		var calls atomic.Int64
		sub := &panickingSubscriber{Subscriber: ending, end: func() {
			if calls.Add(1) <= 2 {
				panic("no connection")
			}
		}}
		cfg := checkConfig(m, sub)
		cfg.MaxInFlight = 1
		sub.succeeding.Store(2 + delayTopics) // the origin whose channel ends, the retry topic, and the delay topics
		ran := make(chan string, 1)
		serve(t, cfg, func(msg *message.Message) error {
			ran <- msg.UUID
			return nil
		})
		if err := m.Publish("orders", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		if id := <-ran; id != "a" || calls.Load() != 3 {
			t.Errorf("%s ran after %d calls, want a after 3", id, calls.Load())
		}
	})
}
