package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// recordingSink records events.
type recordingSink struct {
	mu     sync.Mutex
	events []redeliver.Event
}

func (s *recordingSink) Event(e redeliver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func eventsOf[E redeliver.Event](s *recordingSink) (found []E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// advance advances the bubble's clock and waits until all goroutines are idle.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// serve runs a handler until the test ends.
func serve(t *testing.T, cfg Config, h message.NoPublishHandlerFunc) *mq.Client {
	t.Helper()
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("h", "orders", c.Subscriber(), h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, c.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	<-router.Running()
	return c
}

// closingSubscriber closes its first channel at a message that it cannot read, as watermill-redisstream does.
type closingSubscriber struct {
	message.Subscriber
	remaining atomic.Int64 // channels that are still to be closed
}

func (s *closingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == "orders" && s.remaining.Add(-1) >= 0 {
		in := make(chan *message.Message)
		close(in)
		return in, nil
	}
	return s.Subscriber.Subscribe(ctx, topic)
}

// A channel that the subscriber closes is subscribed again, and reported once.
func TestClosedChannelIsSubscribedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemoryBroker().member(t, "billing"), &recordingSink{}
		sub := &closingSubscriber{Subscriber: m}
		sub.remaining.Store(3)
		cfg := checkConfig(m, sub)
		cfg.MaxInFlight, cfg.Sink = 3, sink
		ran := make(chan string, 1)
		serve(t, cfg, func(msg *message.Message) error {
			ran <- msg.UUID
			return nil
		})
		if err := m.Publish("orders", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		if id := <-ran; id != "a" {
			t.Errorf("%s ran", id)
		}
		synctest.Wait()
		advance(maxPause) // the other two are subscribed again by then
		synctest.Wait()
		var changes []string
		for _, e := range eventsOf[redeliver.SubscriptionChanged](sink) {
			changes = append(changes, string(e.Change))
		}
		if !slices.Equal(changes, []string{"consuming", "disconnected", "consuming"}) {
			t.Errorf("reported %v", changes)
		}
	})
}

// A message that an older policy put on a delay topic, for much longer than this level, blocks no message behind it.
func TestOlderPolicysHeadBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBroker()
		m := b.member(t, "billing")
		cfg := checkConfig(m, m)
		begin := time.Now()
		old := redeliver.State{ID: "old", Group: "billing", Origin: "orders", Attempts: 1, Due: begin.Add(time.Hour), FirstFailed: begin, LastFailed: begin}
		rec := newRecord(message.NewMessage("old", nil), false)
		msg, err := rec.withState(&carried{headers: driver.AppendStateHeaders(old, nil), until: old.Due})
		if err != nil {
			t.Fatal(err)
		}
		b.put("orders.billing.retry.1", msg)
		cfg.Policy = redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second, 10 * time.Minute}}
		var mu sync.Mutex
		took := make(map[string]time.Duration)
		serve(t, cfg, func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempts == 0 {
				return errors.New("declined")
			}
			mu.Lock()
			defer mu.Unlock()
			took[msg.UUID] = time.Since(begin)
			return nil
		})
		b.put("orders", message.NewMessage("new", nil))
		advance(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if took["new"] != time.Second {
			t.Errorf("the retry of the new message ran after %s, want 1s", took["new"])
		}
		if took["old"] < time.Hour || took["old"] > time.Hour+2*time.Second {
			t.Errorf("the retry of the old message ran after %s, want an hour", took["old"])
		}
	})
}

// Two processes with different policies read the same topics. A message on a topic of one policy does not move all the time,
// although the other policy has no level there.
func TestTwoPoliciesDoNotMoveAMessageAllTheTime(t *testing.T) {
	const messages, maxMoves = 20, 50
	short := []time.Duration{time.Second, 4 * time.Second, 15 * time.Second, time.Minute, 4 * time.Minute}
	with := func(longer ...time.Duration) []time.Duration { return slices.Concat(short, longer) }
	for name, levels := range map[string][2][]time.Duration{
		"one level fewer":               {with(15*time.Minute, time.Hour), with(time.Hour)},
		"one level fewer, and shorter":  {with(15*time.Minute, 2*time.Hour), with(time.Hour)},
		"two levels fewer, and shorter": {with(15*time.Minute, time.Hour, 3*time.Hour), with(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, begin := newMemoryBroker(), time.Now()
				var moves, early, late, ran atomic.Int64
				due := begin.Add(3 * time.Hour)
				for _, l := range levels {
					m := b.member(t, "billing")
					cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
						if moves.Add(1) > 10*messages*maxMoves { // without an error this test would never end
							return errRefused
						}
						return m.Publish(topic, msg)
					}}, m)
					cfg.Policy = redeliver.Policy{Levels: l}
					serve(t, cfg, func(*message.Message) error {
						ran.Add(1)
						if after := time.Since(due); after < 0 {
							early.Add(1)
						} else if after > 2*time.Second {
							late.Add(1)
						}
						return nil
					})
				}
				st := redeliver.State{Group: "billing", Origin: "orders", Attempts: 1, Due: due, FirstFailed: begin, LastFailed: begin}
				for n := range messages {
					st.ID = fmt.Sprint(n)
					rec := newRecord(message.NewMessage(st.ID, nil), false)
					until := begin.Add(levels[0][len(levels[0])-1])
					msg, err := rec.withState(&carried{headers: driver.AppendStateHeaders(st, nil), until: until})
					if err != nil {
						t.Fatal(err)
					}
					b.put(Names{}.delay("orders", "billing", len(levels[0])), msg)
				}
				advance(4 * time.Hour)
				synctest.Wait()
				if ran.Load() != messages || early.Load() > 0 || late.Load() > 0 {
					t.Errorf("%d of %d messages ran, %d early, %d late", ran.Load(), messages, early.Load(), late.Load())
				}
				if n := moves.Load(); n > messages*maxMoves {
					t.Errorf("%d messages moved %d times, want at most %d", messages, n, messages*maxMoves)
				}
			})
		})
	}
}

// publisherFunc is a Publish function of a test.
type publisherFunc struct {
	message.Publisher
	publish func(topic string, msg *message.Message) error
}

func (p publisherFunc) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		if err := p.publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// A publisher that panics, or returns only when its context ends, has not stored the message, so it is tried again.
func TestPanickingPublisherIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemoryBroker().member(t, "billing"), &recordingSink{}
		var calls atomic.Int64
		cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
			switch calls.Add(1) {
			case 1:
				panic("no connection")
			case 2:
				<-msg.Context().Done()
				return msg.Context().Err()
			}
			return m.Publish(topic, msg)
		}}, m)
		cfg.Sink, cfg.Policy, cfg.SendTimeout = sink, redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: redeliver.NoRetries}, time.Second
		serve(t, cfg, func(*message.Message) error { return errors.New("declined") })
		if err := m.Publish("orders", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		failed := eventsOf[redeliver.PublishFailed](sink)
		if len(failed) < 2 || !errors.Is(failed[0].Err, redeliver.ErrPanic) || !errors.Is(failed[1].Err, context.DeadlineExceeded) {
			t.Errorf("failed: %+v", failed)
		}
		if dead := eventsOf[redeliver.DeadLettered](sink); len(dead) != 1 {
			t.Errorf("dead: %+v", dead)
		}
	})
}

// A message that a delay topic always refuses goes to the DLQ and blocks nothing.
func TestRefusedMessageIsUnschedulable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemoryBroker().member(t, "billing"), &recordingSink{}
		errSize := errors.New("larger than the broker accepts")
		cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
			if strings.Contains(topic, ".retry") {
				return errSize
			}
			return m.Publish(topic, msg)
		}}, m)
		cfg.Sink, cfg.Refused = sink, func(err error) bool { return errors.Is(err, errSize) }
		serve(t, cfg, func(*message.Message) error { return errors.New("declined") })
		if err := m.Publish("orders", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
		dead := eventsOf[redeliver.DeadLettered](sink)
		if len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonUnschedulable || dead[0].Where != "orders.billing.dlq" {
			t.Errorf("dead: %+v", dead)
		}
	})
}

// initializingSubscriber is a subscriber whose topics must be created.
type initializingSubscriber struct {
	message.Subscriber
	mu    sync.Mutex
	made  []string
	fails bool
}

func (s *initializingSubscriber) SubscribeInitialize(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return errors.New("no such right")
	}
	s.made = append(s.made, topic)
	return nil
}

// Redeliver's topics and the DLQ are created before anything is read, because a broker may drop messages for a
// missing queue.
func TestTopicsAreInitializedBeforeReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryBroker().member(t, "billing")
		sub := &initializingSubscriber{Subscriber: m}
		cfg := checkConfig(m, sub)
		serve(t, cfg, func(*message.Message) error { return nil })
		if len(sub.made) != delayTopics+2 || !slices.Contains(sub.made, "orders.billing.dlq") || slices.Contains(sub.made, "orders") {
			t.Errorf("made %v", sub.made)
		}
		refusing := checkConfig(m, &initializingSubscriber{Subscriber: m, fails: true})
		for _, keeps := range []bool{false, true} {
			refusing.NoProvisioning = keeps
			c, err := Open(t.Context(), refusing)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Subscriber().Subscribe(t.Context(), "orders")
			if (err == nil) != keeps {
				t.Errorf("NoProvisioning %t: %v", keeps, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
