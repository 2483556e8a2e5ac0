package pubsub

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// slow is a subscriber whose broker does not answer: Subscribe, from the call on that
// is to hang, returns when the test says so, whatever becomes of its context.
type slow struct {
	message.Subscriber
	hang    atomic.Int64 // calls before that
	release chan struct{}
	given   atomic.Int64 // messages that came back
}

func (s *slow) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
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
		s.given.Add(1)
	}()
	return in, nil
}

// lazy is one whose topics are never made.
type lazy struct {
	message.Subscriber
	release chan struct{}
}

func (s *lazy) SubscribeInitialize(string) error {
	<-s.release
	return errors.New("given up")
}

// Close does not wait for a Subscribe of the user's subscriber that hangs, the first one or
// one that is made again, and what that brings in the end is given back.
func TestCloseDoesNotWaitForASubscribe(t *testing.T) {
	for name, open := range map[string]func(*testing.T, message.Subscriber, *member) (sub message.Subscriber){
		"group": func(t *testing.T, sub message.Subscriber, m *member) message.Subscriber {
			t.Helper()
			c, err := Open(over(m, sub))
			if err != nil {
				t.Fatal(err)
			}
			return c.Subscriber()
		},
		"broadcast": func(t *testing.T, sub message.Subscriber, _ *member) message.Subscriber {
			t.Helper()
			b, err := OpenBroadcast(BroadcastConfig{Subscriber: sub})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory().member(t, "billing")
				hanging := &slow{Subscriber: m, release: make(chan struct{})}
				sub := open(t, hanging, m)
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
				if n := hanging.given.Load(); n != 1 {
					t.Errorf("%d messages of a Subscribe that came too late were given back", n)
				}

				again := &slow{Subscriber: &breakingOf{breaking{Subscriber: m}, "orders"}, release: make(chan struct{})}
				again.Subscriber.(*breakingOf).left.Store(1)
				again.hang.Store(2*DefaultMaxInFlight + delayTopics)
				if name == "broadcast" {
					again.hang.Store(1)
				}
				sub = open(t, again, m)
				out, err := sub.Subscribe(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				elapse(time.Minute) // one channel has ended, and is not made again
				if err := sub.Close(); err != nil {
					t.Error(err)
				}
				if _, open := <-out; open {
					t.Error("something was delivered")
				}
				close(again.release)
				synctest.Wait()
				if n := again.given.Load(); n != 1 {
					t.Errorf("%d messages of one that was made again too late were given back", n)
				}
			})
		})
	}
}

// Nor does it wait for topics that are being made.
func TestCloseDoesNotWaitForTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory().member(t, "billing")
		hanging := &lazy{m, make(chan struct{})}
		defer close(hanging.release)
		c, err := Open(over(m, hanging))
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
		if err := <-begun; !errors.Is(err, errClosed) {
			t.Errorf("it is subscribed: %v", err)
		}
	})
}
