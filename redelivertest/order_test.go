package redelivertest_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/redelivertest"
)

// ordered publishes a, b and c of one key. a fails its first two attempts. It returns the order of the attempts.
func ordered(t *testing.T, b *redelivertest.Broker, p redeliver.Policy) (ran []string, sub *redelivertest.Subscription) {
	t.Helper()
	failed := errors.New("declined")
	sub = b.Open(redelivertest.Config{Group: "billing", Policy: p}).Handle("orders", func(msg *message.Message) error {
		ran = append(ran, msg.UUID)
		if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "a" && st.Attempts < 2 {
			return failed
		}
		return nil
	})
	for _, id := range []string{"a", "b", "c"} {
		b.Publish("orders", message.NewMessage(id, nil))
	}
	b.Wait()
	return ran, sub
}

func TestABlockingPolicyWaitsInPlace(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		begun := time.Now()
		ran, sub := ordered(t, b, redeliver.Policy{Order: redeliver.OrderBlocking})
		if want := []string{"a", "a", "a", "b", "c"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		if took := time.Since(begun); took != 2*limits.DefaultBlock {
			t.Errorf("took %v, want twice the default of %v", took, limits.DefaultBlock)
		}
		for _, e := range sub.Events() {
			if e, ok := e.(redeliver.RetryScheduled); ok && (e.Where != "orders" || e.Delay != time.Second) {
				t.Errorf("waited at %s for %s", e.Where, e.Delay)
			}
		}
	})
}

func TestABlockingPolicyContinuesBehindADeadLetter(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		ran, sub := ordered(t, b, redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 1, Backoff: redeliver.Fixed(30 * time.Second)})
		if want := []string{"a", "a", "b", "c"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		if dead := sub.DeadLetters(); len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonExhausted || dead[0].State.Attempts != 2 {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

func TestTheWaitOfABlockingPolicyIsBounded(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		begun := time.Now()
		b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Order: redeliver.OrderBlocking}}).Handle("orders", func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempts == 0 {
				return redeliver.RetryAfter(errors.New("busy"), time.Hour)
			}
			return nil
		})
		b.Publish("orders", message.NewMessage("a", nil))
		b.Wait()
		if took := time.Since(begun); took != limits.MaxBlock {
			t.Errorf("took %v, want %v", took, limits.MaxBlock)
		}
	})
}

func TestABlockedMessageComesBackWhenItsProcessEnds(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", DrainTimeout: time.Second, Policy: redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(20 * time.Second)}})
		c.Handle("orders", func(*message.Message) error { return errors.New("declined") })
		b.Publish("orders", message.NewMessage("a", nil))
		<-time.After(5 * time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		ran, _ := ordered(t, b, redeliver.Policy{Order: redeliver.OrderBlocking})
		if len(ran) == 0 || ran[0] != "a" {
			t.Errorf("ran %q", ran)
		}
	})
}

func TestUnorderedMessagesOfAKeyRunAtOnce(t *testing.T) {
	for order, want := range map[redeliver.Order]int{redeliver.OrderFirstAttempts: 1, redeliver.OrderNone: 3} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			var mu sync.Mutex
			running, most := 0, 0
			change := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				running += by
				most = max(most, running)
			}
			b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Order: order}}).Handle("orders", func(*message.Message) error {
				change(1)
				<-time.After(time.Second)
				change(-1)
				return nil
			})
			for _, id := range []string{"a", "b", "c"} {
				msg := message.NewMessage(id, nil)
				redelivertest.SetKey(msg, "one")
				b.Publish("orders", msg)
			}
			b.Wait()
			if most != want {
				t.Errorf("%s: %d ran at once, want %d", order, most, want)
			}
		})
	}
}

func TestABlockedMessageThatTimesOutKeepsItsPlace(t *testing.T) {
	for name, test := range map[string]struct {
		hang func(*message.Message)
		want []string
	}{
		"when its handler returns": {func(m *message.Message) { <-m.Context().Done() }, []string{"a", "a", "b"}},
		"not when it is stuck":     {func(*message.Message) { <-time.After(time.Minute) }, []string{"a", "b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				var mu sync.Mutex
				var ran []string
				sub := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Order: redeliver.OrderBlocking, Timeout: 10 * time.Second, Backoff: redeliver.Fixed(5 * time.Second)}}).
					Handle("orders", func(msg *message.Message) error {
						mu.Lock()
						ran = append(ran, msg.UUID)
						mu.Unlock()
						if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "a" && st.Attempts == 0 {
							test.hang(msg)
						}
						return nil
					})
				for _, id := range []string{"a", "b"} {
					b.Publish("orders", message.NewMessage(id, nil))
				}
				b.Wait()
				<-time.After(time.Hour)
				if !slices.Equal(ran, test.want) {
					t.Errorf("ran %q, want %q", ran, test.want)
				}
				for _, e := range sub.Events() {
					if e, ok := e.(redeliver.Attempted); ok && e.State.ID == "a" && e.State.Attempts == 0 && !errors.Is(e.Err, redeliver.ErrTimeout) {
						t.Errorf("the first attempt ended with %v", e.Err)
					}
				}
			})
		})
	}
}

// A message that waits for hours waits on the levels, with its attempts in its headers. The messages behind it wait in
// the topic.
func TestPerKeyLongWaitsAreOnTheLevels(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		type end struct {
			id    string
			after time.Duration
		}
		var mu sync.Mutex
		var ends []end
		begun := time.Now()
		orders := b.Open(redelivertest.Config{
			Group: "billing", MaxInFlight: 1,
			Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: 2, Backoff: redeliver.Fixed(3 * time.Hour)},
		}).Handle("orders", func(msg *message.Message) error {
			if msg.UUID == "a1" || msg.UUID == "a2" {
				return errors.New("declined")
			}
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, end{msg.UUID, time.Since(begun)})
			return nil
		})
		for _, id := range []string{"a1", "b1", "a2", "keyless", "a3", "b2"} {
			msg := message.NewMessage(id, nil)
			if id != "keyless" {
				redelivertest.SetKey(msg, id[:1])
			}
			b.Publish("orders", msg)
		}
		if waiting := orders.Waiting(); len(waiting) != 1 || waiting[0].Message.UUID != "a1" {
			t.Errorf("waiting: %+v", waiting)
		}
		b.Wait()
		if want := []end{{"b1", 0}, {"keyless", 0}, {"b2", 0}, {"a3", 12 * time.Hour}}; !slices.Equal(ends, want) {
			t.Errorf("ended %v, want %v", ends, want)
		}
		if dead := orders.DeadLetters(); len(dead) != 2 || dead[0].State.Attempts != 3 || dead[1].State.ID != "a2" {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

// A message that was replayed from the DLQ has no place in the order. It waits for no later message, and none waits for
// it.
func TestPerKeyAReplayHasNoPlace(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var ran []string
		sub := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour)}}).
			Handle("orders", func(msg *message.Message) error {
				ran = append(ran, msg.UUID)
				if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "a" && (st.Replays == 0 || st.Attempts == 0) {
					return errors.New("declined")
				}
				return nil
			})
		publish := func(id string) {
			msg := message.NewMessage(id, nil)
			redelivertest.SetKey(msg, "one")
			b.Publish("orders", msg)
		}
		publish("a")
		b.Wait()
		if _, err := deadletter.Replay(t.Context(), sub.DeadLetterQueue(), deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil {
			t.Fatal(err)
		}
		sub.Waiting() // every message that can run has run
		publish("b")  // while a waits
		b.Wait()
		if want := []string{"a", "a", "a", "b", "a"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
	})
}
