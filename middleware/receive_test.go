package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// newReceiver returns a Receiver of "documents" with its own client.
func newReceiver(t *testing.T, b *redelivertest.Broker, p redeliver.Policy) (*middleware.Receiver, *redelivertest.Subscription, *redelivertest.Client) {
	t.Helper()
	c := b.Open(redelivertest.Config{Group: "search", Policy: p, MaxInFlight: 10})
	r, err := middleware.NewReceiver(context.Background(), c.Subscriber(), "documents")
	if err != nil {
		t.Fatal(err)
	}
	return r, c.Subscription("documents"), c
}

// take receives messages and checks them: "b 2" is the second attempt of b.
func take(t *testing.T, r *middleware.Receiver, maxMessages int, invisible time.Duration, want ...string) []*middleware.Received {
	t.Helper()
	all, err := r.Receive(t.Context(), maxMessages, invisible)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		st, _ := redeliver.FromContext(m.Message.Context())
		got = append(got, fmt.Sprint(m.Message.UUID, " ", st.Attempt()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	return all
}

func ack(t *testing.T, m *middleware.Received) {
	t.Helper()
	if err := m.Ack(); err != nil {
		t.Error(err)
	}
}

func TestReceive(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, sub, _ := newReceiver(t, b, redeliver.Policy{Timeout: redeliver.NoTimeout})
		begun := time.Now()
		for _, id := range []string{"a", "b", "c"} {
			b.Publish("documents", message.NewMessage(id, nil))
			synctest.Wait() // messages of different keys come in any order otherwise
		}
		first := take(t, r, 2, time.Minute, "a 1", "b 1")
		<-time.After(20 * time.Second)
		if err := first[0].Ack(); err != nil {
			t.Error(err)
		}
		ack(t, take(t, r, 2, hour, "c 1")[0])
		// The invisible time of b continues, and is over 40 s later.
		again := take(t, r, 2, time.Minute, "b 2")
		if took := time.Since(begun); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("b came back after %v, want a minute", took)
		}
		if again[0].Message.Context().Err() != nil || first[1].Message.Context().Err() == nil {
			t.Error("a message's context must end with its invisible time, and not earlier")
		}
		ack(t, again[0])
		for _, m := range append(first, again...) {
			if err := m.Ack(); err == nil {
				t.Error("a second Ack is not an error")
			}
		}
		committed := 0
		for _, e := range sub.Events() {
			if _, ok := e.(redeliver.Committed); ok {
				committed++
			}
		}
		if committed != 3 {
			t.Errorf("%d committed, want 3", committed)
		}
	})
}

func TestAReceivedMessageWithoutAckEndsInTheDLQ(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, sub, _ := newReceiver(t, b, redeliver.Policy{MaxRetries: 2})
		b.Publish("documents", message.NewMessage("a", nil))
		for attempt := 1; attempt <= 3; attempt++ {
			take(t, r, 1, time.Second, fmt.Sprint("a ", attempt))
		}
		dead := sub.DeadLetters()
		if len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonTimeout || dead[0].State.Error != "not acked within 1s: handler timed out" {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

func TestChangeInvisible(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, _, _ := newReceiver(t, b, redeliver.Policy{Timeout: time.Minute})
		b.Publish("documents", message.NewMessage("a", nil))
		begun := time.Now()
		m := take(t, r, 1, 10*time.Second, "a 1")[0]
		for range 3 { // each time counted from the call
			<-time.After(9 * time.Second)
			if err := m.ChangeInvisible(10 * time.Second); err != nil {
				t.Fatal(err)
			}
		}
		again := take(t, r, 1, 10*time.Second, "a 2")[0]
		if took := time.Since(begun); took < 37*time.Second || took > 38*time.Second {
			t.Errorf("came back after %v, want 37s", took)
		}
		if err := m.ChangeInvisible(time.Second); !errors.Is(err, middleware.ErrVisibleAgain) {
			t.Errorf("after its time: %v", err)
		}
		if err := m.Ack(); !errors.Is(err, middleware.ErrVisibleAgain) {
			t.Errorf("Ack after its time: %v", err)
		}
		for _, bad := range []time.Duration{-1, time.Minute + 1} {
			if again.ChangeInvisible(bad) == nil {
				t.Errorf("%v was not refused", bad)
			}
		}
		for _, good := range []time.Duration{time.Minute, 0} {
			if err := again.ChangeInvisible(good); err != nil {
				t.Errorf("%v: %v", good, err)
			}
		}
		third := take(t, r, 1, 10*time.Second, "a 3")[0]
		ack(t, third)
		if err := third.ChangeInvisible(time.Second); !errors.Is(err, middleware.ErrSettled) {
			t.Errorf("after Ack: %v", err)
		}
	})
}

func TestReceiveRefusesInvalidArguments(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, _, _ := newReceiver(t, b, redeliver.Policy{Timeout: time.Minute})
		for _, bad := range []struct {
			most      int
			invisible time.Duration
		}{{0, time.Second}, {-1, time.Second}, {1, 0}, {1, -time.Second}} {
			if _, err := r.Receive(t.Context(), bad.most, bad.invisible); err == nil {
				t.Errorf("%+v was not refused", bad)
			}
		}
		b.Publish("documents", message.NewMessage("a", nil))
		synctest.Wait()
		if _, err := r.Receive(t.Context(), 1, time.Minute+1); err == nil {
			t.Error("more than the policy's Timeout was not refused")
		}
		ack(t, take(t, r, 1, time.Minute, "a 1")[0]) // the refused call lost no message
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Receive(ctx, 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a message: %v", err)
		}
		r.Close()
		if _, err := r.Receive(t.Context(), 1, time.Minute); !errors.Is(err, middleware.ErrReceiverClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestReceiveOfAnInvalidMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, sub, _ := newReceiver(t, b, redeliver.Policy{Invalid: func(m redeliver.Message) error {
			if m.State.ID == "a" {
				return errHandler
			}
			return nil
		}})
		publish(b, "a", "b")
		ack(t, take(t, r, 1, time.Minute, "b 1")[0])
		if dead := sub.DeadLetters(); len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonInvalidated {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

func TestReceivedMessagesOfADeadProcess(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		r, _, c := newReceiver(t, b, redeliver.Policy{})
		publish(b, "a")
		lost := take(t, r, 1, time.Minute, "a 1")[0]
		c.Kill()
		r2, _, _ := newReceiver(t, b, redeliver.Policy{})
		ack(t, take(t, r2, 1, time.Minute, "a 1")[0])
		if err := lost.Ack(); !errors.Is(err, engine.ErrAbandoned) {
			t.Errorf("Ack of a killed process: %v", err)
		}
	})
}
