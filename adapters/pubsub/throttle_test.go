package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// measuringSubscriber measures how long its messages are unsettled.
type measuringSubscriber struct {
	message.Subscriber
	mu             sync.Mutex
	unsettledSince map[*message.Message]time.Time
	longest        time.Duration
	n              int
}

// begin and settle record the start and the end of a message.
func (s *measuringSubscriber) begin(msg *message.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettledSince[msg] = time.Now()
}

func (s *measuringSubscriber) settle(msg *message.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest, s.n = max(s.longest, time.Since(s.unsettledSince[msg])), s.n+1
	delete(s.unsettledSince, msg)
}

// maxUnsettled returns the longest time, including unsettled messages, and the number of messages.
func (s *measuringSubscriber) maxUnsettled() (longest time.Duration, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest = s.longest
	for _, began := range s.unsettledSince {
		longest = max(longest, time.Since(began))
	}
	return longest, s.n
}

func (s *measuringSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil || topic != "orders" && topic != "orders.billing.retry" {
		return in, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
			s.begin(msg)
			select {
			case <-msg.Acked():
			case <-msg.Nacked():
			case <-ctx.Done():
				return
			}
			s.settle(msg)
		}
	}()
	return out, nil
}

// While messages fail, each waits for its turn, at most for the turns of all others. Open checks MaxUnacked
// against that.
func TestThrottledMessagesAreUnackedForTheirTurnsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inFlight, takes = 8, 50 * time.Millisecond
		m, sink := newMemoryBroker().member(t, "billing"), &recordingSink{}
		sub := &measuringSubscriber{Subscriber: m, unsettledSince: make(map[*message.Message]time.Time)}
		cfg := checkConfig(m, sub)
		cfg.MaxInFlight, cfg.MinInFlight, cfg.Sink = inFlight, 1, sink
		cfg.Policy = redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 1000, Backoff: redeliver.Fixed(time.Second)}
		serve(t, cfg, func(*message.Message) error {
			<-time.After(takes)
			return errors.New("declined")
		})
		for i := range 400 {
			if err := m.Publish("orders", message.NewMessage(fmt.Sprint("m-", i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		advance(20 * time.Second) // now one message is in flight at a time
		sub.mu.Lock()
		sub.longest, sub.n = 0, 0
		sub.mu.Unlock()
		advance(20 * time.Second)
		synctest.Wait()
		longest, n := sub.maxUnsettled()
		if want := int(20 * time.Second / takes); n < want*9/10 || n > want+1 {
			t.Fatalf("%d messages were settled in 20 s, want one after another, %d", n, want)
		}
		if most := 2 * inFlight * takes; longest > most {
			t.Errorf("a message was unacked for %s, want %s at most", longest, most)
		}
	})
}
