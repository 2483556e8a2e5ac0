package sqs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/mq"
)

// timedClose closes a client and sends how long that takes.
func (b *bubble) timedClose(c *mq.Client) <-chan time.Duration {
	took := make(chan time.Duration, 1)
	go func() {
		begun := time.Now()
		b.close(c)
		took <- time.Since(begun)
	}()
	return took
}

// A receive that is cut short may lose messages. So Close waits for receives while messages come, and for all of a
// FIFO queue. It makes their messages visible at once, and keeps the order of each group.
func TestCloseWaitsForReceives(t *testing.T) {
	for _, c := range []struct {
		queue string
		idle  time.Duration
		most  time.Duration
	}{
		{"orders", time.Second, maxAwaitedWait},
		{"orders.fifo", time.Second, maxAwaitedWait},
		{"orders.fifo", time.Minute, defaultFIFOWaitTime},
	} {
		t.Run(fmt.Sprint(c.queue, " ", c.idle), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(c.queue)
				group := map[bool]string{true: "g"}[api.IsFIFO(c.queue)]
				b.put(c.queue, "first", "v", group, nil)
				client := b.start("one", c.queue, Config{VisibilityTimeout: time.Hour}, succeed)
				b.advance(c.idle)
				closed := b.timedClose(client)
				b.advance(200 * time.Millisecond)
				for i := range 3 {
					b.put(c.queue, fmt.Sprint("m", i), "v", group, nil)
				}
				if took := <-closed; took > c.most {
					b.Errorf("closing took %s, want at most %s", took, c.most)
				}
				b.advance(time.Minute)
				if b.Abandoned() != 0 {
					b.Errorf("%d receives were cut short", b.Abandoned())
				}
				if n := len(b.ran("")); n != 1 {
					b.Errorf("%d messages ran, want only the one that began before Close", n)
				}
				for _, m := range b.Messages(c.queue) {
					if m.Receives > 1 || m.Visible.After(time.Now()) {
						b.Errorf("%s was received %d times, and is hidden for %s", m.ID, m.Receives, time.Until(m.Visible))
					}
				}
			})
		})
	}
}

// Close of an idle subscriber cuts its receive short. A message that SQS still delivers to that receive stays hidden
// for seconds, not for the visibility timeout, and counts no attempt.
func TestCloseOfAnIdleSubscriberIsFast(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		one := b.start("one", "orders", Config{VisibilityTimeout: time.Hour}, succeed)
		b.advance(time.Minute)
		if took := <-b.timedClose(one); took > 100*time.Millisecond || b.Abandoned() != 1 {
			b.Errorf("closing took %s, %d receives were cut short, want 1", took, b.Abandoned())
		}
		b.put("orders", "a", "v", "", nil)
		b.advance(time.Second)
		if m := b.Messages("orders")[0]; m.Receives != 1 {
			b.Fatalf("%d receives got the message, want only the one that was cut short", m.Receives)
		}
		at := time.Since(b.began)
		two := b.start("two", "orders", Config{}, succeed)
		b.advance(time.Minute)
		if runs := b.ran("a"); len(runs) != 1 || runs[0].attempt != 1 || runs[0].at > at+maxShortVisibility {
			b.Errorf("ran %v, want once as attempt 1 within %s after %s", runs, maxShortVisibility, at)
		}
		b.close(two)
	})
}

// While a handler runs, a receive has time to end, and Close does not cut it short.
func TestCloseCutsNoReceiveWhileAHandlerRuns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		c := b.start("one", "orders", Config{VisibilityTimeout: time.Hour}, func(redeliver.State, *message.Message) error {
			<-time.After(55 * time.Second)
			return nil
		})
		b.put("orders", "a", "v", "", nil)
		b.advance(50 * time.Second) // in the middle of a receive of 10 s
		closed := b.timedClose(c)
		b.advance(500 * time.Millisecond)
		b.put("orders", "b", "v", "", nil)
		b.advance(time.Second)
		if m := b.Messages("orders"); len(m) != 2 || m[1].Receives != 1 || m[1].Visible.After(time.Now()) {
			b.Errorf("b was received %d times and is hidden for %s, want once and returned", m[1].Receives, time.Until(m[1].Visible))
		}
		if took := <-closed; took > 6*time.Second || b.Abandoned() != 0 {
			b.Errorf("closing took %s, %d receives were cut short", took, b.Abandoned())
		}
		b.wantRunsOnce("a")
	})
}

// A receive that may be cut short hides its messages briefly. They stay hidden while they run.
func TestMessageOfALongReceiveStaysHidden(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		handler := func(redeliver.State, *message.Message) error {
			<-time.After(4 * time.Minute)
			return nil
		}
		one := b.start("one", "orders", Config{VisibilityTimeout: time.Hour}, handler)
		two := b.start("two", "orders", Config{VisibilityTimeout: time.Hour}, handler)
		b.advance(time.Minute)
		b.put("orders", "a", "v", "", nil)
		b.advance(time.Second)
		if left := time.Until(b.Messages("orders")[0].Visible); left > maxShortVisibility {
			b.Errorf("it is hidden for %s at first, want %s", left, maxShortVisibility)
		}
		b.advance(10 * time.Minute)
		b.wantRunsOnce("a")
		if n := b.Count("ChangeMessageVisibilityBatch"); n != 1 {
			b.Errorf("%d heartbeats, want 1", n)
		}
		b.close(one)
		b.close(two)
		if n := len(b.Messages("orders")); n != 0 {
			b.Errorf("%d are left", n)
		}
	})
}

// The test counts the requests of an idle subscription.
func TestRequestsOfAnIdleSubscriber(t *testing.T) {
	for queue, want := range map[string]time.Duration{"orders": defaultWaitTime, "orders.fifo": defaultFIFOWaitTime} {
		inBubble(t, func(b *bubble) {
			b.Create(queue)
			c := b.start("one", queue, Config{}, succeed)
			b.advance(time.Minute)
			before := b.Count("ReceiveMessage")
			b.advance(time.Hour)
			if n, most := b.Count("ReceiveMessage")-before, int(time.Hour/want)+1; n > most {
				b.Errorf("%s: %d receives in an hour, want at most %d", queue, n, most)
			}
			b.close(c)
		})
	}
}

// No receive outlasts the drain timeout.
func TestCloseCutsALongReceive(t *testing.T) {
	for queue, want := range map[string]time.Duration{"orders": 0, "orders.fifo": 3 * time.Second} {
		inBubble(t, func(b *bubble) {
			b.Create(queue)
			c := b.start("one", queue, Config{WaitTime: 20 * time.Second, DrainTimeout: 3 * time.Second}, succeed)
			b.advance(time.Minute)
			begun := time.Now()
			if err := c.Close(context.Background()); err != nil {
				b.Error(err)
			}
			if took := time.Since(begun); took < want || took > want+time.Second || b.Abandoned() != 1 {
				b.Errorf("%s: closing took %s, want %s; %d receives were cut, want 1", queue, took, want, b.Abandoned())
			}
		})
	}
}

// A request for messages fits beside one slow handler, however few slots there are.
func TestASlowHandlerLeavesTheOtherSlotsInUse(t *testing.T) {
	for _, slots := range []int{2, 3, 4} {
		inBubble(t, func(b *bubble) {
			b.Create("orders")
			end := make(chan struct{})
			c := b.start("one", "orders", Config{MaxInFlight: slots}, func(st redeliver.State, _ *message.Message) error {
				if st.ID == "slow" {
					<-end
				}
				return nil
			})
			b.put("orders", "slow", "v", "", nil)
			b.advance(time.Second)
			b.put("orders", "quick", "v", "", nil)
			b.advance(10 * time.Second)
			if len(b.ran("slow")) != 1 || len(b.ran("quick")) != 1 {
				b.Errorf("with %d slots, ran %v", slots, b.ran(""))
			}
			close(end)
			b.close(c)
		})
	}
}
