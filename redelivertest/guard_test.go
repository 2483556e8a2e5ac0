package redelivertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// shop is a handler with a dependency that may be down, and a sink.
type shop struct {
	mu         sync.Mutex
	failure    error            // for all messages; nil if the dependency works
	own        map[string]error // of single messages
	runs       map[string]int
	at         []time.Duration // of all attempts, since start
	dead       map[string]redeliver.State
	done       map[string]time.Duration
	reported   []redeliver.Change
	reportedAt map[redeliver.Change]time.Duration // the latest time of each change
	start      time.Time
}

func newShop() *shop {
	return &shop{own: map[string]error{}, runs: map[string]int{}, dead: map[string]redeliver.State{}, done: map[string]time.Duration{}, reportedAt: map[redeliver.Change]time.Duration{}, start: time.Now()}
}

func (s *shop) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

func (s *shop) handle(msg *message.Message) error {
	<-time.After(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[msg.UUID]++
	s.at = append(s.at, time.Since(s.start))
	if err := s.own[msg.UUID]; err != nil {
		return err
	}
	return s.failure
}

func (s *shop) Event(e redeliver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.start)
	switch e := e.(type) {
	case redeliver.DeadLettered:
		s.dead[e.State.ID] = e.State
	case redeliver.Committed:
		s.done[e.State.ID] = now
	case redeliver.SubscriptionChanged:
		s.reported = append(s.reported, e.Change)
		s.reportedAt[e.Change] = now
		if bad := e.Change == redeliver.ChangeOutage || e.Change == redeliver.ChangeFlood; bad != (e.Err != nil) || e.Origin != "orders" || e.Group != "billing" || e.Detail == "" {
			panic(fmt.Sprintf("reported %+v", e))
		}
	}
}

// want checks the events, and the numbers of committed and dead-lettered messages.
func (s *shop) want(t *testing.T, done, dead int, reported ...redeliver.Change) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.reported, reported) {
		t.Errorf("reported %q, want %q", s.reported, reported)
	}
	if len(s.done) != done || len(s.dead) != dead {
		t.Errorf("%d messages committed and %d dead-lettered, want %d and %d", len(s.done), len(s.dead), done, dead)
	}
}

// maxAttempts returns the largest number of attempts of one message.
func (s *shop) maxAttempts() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, runs := range s.runs {
		n = max(n, runs)
	}
	return n
}

// between returns the number of attempts between two times.
func (s *shop) between(from, to time.Duration) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

func (s *shop) ran() int { return s.between(0, 1<<62) }

// publish publishes messages. They have keys if keys is not 0.
func publish(b *redelivertest.Broker, prefix string, n, keys int) {
	for i := range n {
		msg := message.NewMessage(fmt.Sprintf("%s-%d", prefix, i), nil)
		if keys > 0 {
			redelivertest.SetKey(msg, fmt.Sprint("key-", i%keys))
		}
		b.Publish("orders", msg)
	}
}

// guarded returns a policy with three retries after a second that detects outages.
func guarded(order redeliver.Order) redeliver.Policy {
	return redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Second), Order: order}
}

var outageAndBack = []redeliver.Change{redeliver.ChangeOutage, redeliver.ChangeProbing, redeliver.ChangeOutageOver}

// The dependency is down for ten minutes, and the retries take three seconds. No message goes to the DLQ, the
// dependency is not overloaded, and processing continues when it is back.
func TestAnOutageDeadLettersNothing(t *testing.T) {
	for name, c := range map[string]struct {
		policy redeliver.Policy
		keys   int
		least  int
		batch  bool
	}{
		"no keys":         {guarded(redeliver.OrderFirstAttempts), 0, 0, false},
		"keys":            {guarded(redeliver.OrderFirstAttempts), 100, 0, false},
		"unordered":       {guarded(redeliver.OrderNone), 100, 0, false},
		"per key":         {guarded(redeliver.OrderThroughRetries), 100, 0, false},
		"and a throttle":  {guarded(redeliver.OrderFirstAttempts), 0, 2, false},
		"in batches":      {guarded(redeliver.OrderFirstAttempts), 0, 0, true},
		"retries at once": {redeliver.Policy{MaxRetries: 2, Immediate: 2, Backoff: redeliver.Fixed(time.Second)}, 0, 0, false},
		"no retries":      {redeliver.Policy{MaxRetries: redeliver.NoRetries}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop()
				s.set(errAway)
				client := b.Open(redelivertest.Config{Group: "billing", Policy: c.policy, Sink: s, MaxInFlight: 50, MinInFlight: c.least})
				if c.batch {
					client.Handle("orders", must(middleware.Batch(redeliver.BatchConfig{Size: 20, Timeout: time.Second}, func(_ context.Context, mb *middleware.MessageBatch) error {
						for _, m := range mb.Messages {
							if err := s.handle(m.Record); err != nil {
								m.Retry()
							}
						}
						return nil
					})))
				} else {
					client.Handle("orders", s.handle)
				}
				const n = 1000
				publish(b, "m", n, c.keys)
				<-time.After(10 * time.Minute)
				before := s.ran()
				if before > 50+50+60 {
					t.Errorf("%d attempts in 10 minutes of an outage", before)
				}
				s.set(nil)
				back := time.Since(s.start)
				b.Wait()
				deadCount := 0
				if c.policy.MaxRetries == redeliver.NoRetries { // attempts before the outage could be detected
					deadCount = len(s.dead)
					if deadCount >= 20 {
						t.Errorf("%d messages were dead-lettered, want 20 events", deadCount)
					}
				}
				reported := outageAndBack
				if c.least > 0 {
					reported = s.reported // the throttle decides
				}
				s.want(t, n-deadCount, deadCount, reported...)
				if maxAttempts := s.maxAttempts(); maxAttempts > 6 {
					t.Errorf("a message ran %d times", maxAttempts)
				}
				if late := s.reportedAt[redeliver.ChangeOutageOver] - back; late > 31*time.Second {
					t.Errorf("the end of the outage was reported after %s", late)
				}
			})
		})
	}
}

// Bad messages that came one after another look like an outage. It ends when others succeed between them, so that they are
// dead-lettered by the policy and the others do not wait for them.
func TestBadMessagesBetweenOthersEndAnOutage(t *testing.T) {
	for name, order := range map[string]redeliver.Order{"key order": redeliver.OrderFirstAttempts, "unordered": redeliver.OrderNone, "per key": redeliver.OrderThroughRetries} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop()
				const bad, good = 25, 300
				for i := range bad {
					s.own[fmt.Sprintf("bad-%d", i)] = errAway
				}
				b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Order: order}, Sink: s, MaxInFlight: 50}).Handle("orders", s.handle)
				publish(b, "bad", bad, 0)
				published := map[string]time.Duration{}
				for i := range good {
					id := fmt.Sprint("m", i)
					published[id+"-0"] = time.Since(s.start)
					publish(b, id, 1, 0)
					<-time.After(200 * time.Millisecond)
				}
				b.Wait()
				s.want(t, good, bad, s.reported...)
				for id, at := range published {
					if took := s.done[id] - at; took > 30*time.Second {
						t.Errorf("%s took %s", id, took)
					}
				}
			})
		})
	}
}

// In blocking order one message of a partition fails at a time. One message is no outage.
func TestOneMessageInBlockingOrderIsNoOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.set(errAway)
		policy := guarded(redeliver.OrderBlocking)
		policy.MaxRetries = 20
		b.Open(redelivertest.Config{Group: "billing", Policy: policy, Sink: s}).Handle("orders", s.handle)
		publish(b, "m", 5, 0)
		<-time.After(5500 * time.Millisecond)
		if n := s.ran(); n != 6 {
			t.Errorf("%d attempts in 5.5 s", n)
		}
		s.set(nil)
		b.Wait()
		s.want(t, 5, 0)
	})
}

// Messages that fail because of themselves, among others that succeed, are no outage.
func TestPoisonIsNoOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 20}).Handle("orders", s.handle)
		for i := 0; i < 1000; i += 10 {
			s.own[fmt.Sprint("m-", i)] = fmt.Errorf("no such article %d", i)
		}
		publish(b, "m", 1000, 0)
		b.Wait()
		s.want(t, 900, 100)
	})
}

// A single key or a single message is no outage, even among other failures.
func TestASingleKeyIsNoOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.set(errAway)
		b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s}).Handle("orders", s.handle)
		publish(b, "m", 50, 1)
		b.Wait()
		s.want(t, 0, 50)
	})
}

// One outage may cause two different errors.
func TestAnOutageOfTwoErrors(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 20}).Handle("orders", s.handle)
		for i := range 300 {
			s.own[fmt.Sprint("m-", i)] = errAway
			if i%2 == 0 {
				s.own[fmt.Sprint("m-", i)] = errors.New("connection refused")
			}
		}
		publish(b, "m", 300, 0)
		<-time.After(5 * time.Minute)
		s.want(t, 0, 0, redeliver.ChangeOutage)
		s.mu.Lock()
		clear(s.own)
		s.mu.Unlock()
		b.Wait()
		s.want(t, 300, 0, outageAndBack...)
	})
}

// The dependency is still down if its error changes later. A probe that fails because of its own message does not hold
// back the others.
func TestProbesThatFailWithAnotherError(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.set(errAway)
		b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 20}).Handle("orders", s.handle)
		publish(b, "m", 200, 0)
		<-time.After(time.Minute)
		s.set(errors.New("starting up"))
		<-time.After(5 * time.Minute)
		s.want(t, 0, 0, redeliver.ChangeOutage)
		s.mu.Lock()
		s.own["m-199"] = errors.New("no such article")
		s.own["m-50"] = redeliver.Permanent(errors.New("no such customer"))
		s.mu.Unlock()
		s.set(nil)
		b.Wait()
		s.want(t, 198, 2, s.reported...)
		if last := s.reported[len(s.reported)-1]; last != redeliver.ChangeOutageOver || s.reportedAt[last] > 8*time.Minute {
			t.Errorf("reported %q, the last after %s", s.reported, s.reportedAt[last])
		}
		if st := s.dead["m-199"]; st.Attempts != 4 {
			t.Errorf("all of its attempts are counted after the outage: %d", st.Attempts)
		}
	})
}

// When only one message still fails, it is no outage.
func TestASingleFailingMessageEndsTheOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		policy := guarded(redeliver.OrderFirstAttempts)
		policy.Outage.MinKeys = 2
		b.Open(redelivertest.Config{Group: "billing", Policy: policy, Sink: s}).Handle("orders", s.handle)
		s.own["m-0"], s.own["m-1"] = errAway, errAway
		publish(b, "m", 2, 0)
		<-time.After(2 * time.Second)
		s.mu.Lock()
		delete(s.own, "m-0")
		s.mu.Unlock()
		b.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, dead := s.dead["m-1"]; !dead || len(s.done) != 1 || s.reported[len(s.reported)-1] != redeliver.ChangeOutageOver {
			t.Errorf("in the DLQ %v, %d committed, reported %q", s.dead, len(s.done), s.reported)
		}
	})
}

// A subscription that is closed in an outage closes at once, and its messages go to the next one.
func TestCloseInAnOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.set(errAway)
		for range 2 {
			client := b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 50})
			client.Handle("orders", s.handle)
			publish(b, fmt.Sprint("m", s.ran()), 100, 10000)
			<-time.After(time.Minute)
			began := time.Now()
			if err := client.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("closing took %s", took)
			}
		}
		s.set(nil)
		b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s}).Handle("orders", s.handle)
		b.Wait()
		s.want(t, 200, 0, redeliver.ChangeOutage, redeliver.ChangeOutage)
	})
}

// Receive detects outages, too: a message that is not acked in time has failed.
func TestAnOutageForReceive(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		client := b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s})
		r, err := middleware.NewReceiver(t.Context(), client.Subscriber(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		publish(b, "m", 40, 0)
		end := time.Now().Add(5 * time.Minute)
		got := 0
		for time.Now().Before(end) { // no message is acked
			ctx, cancel := context.WithDeadline(t.Context(), end)
			all, _ := r.Receive(ctx, 10, time.Second)
			got += len(all)
			cancel()
		}
		s.want(t, 0, 0, redeliver.ChangeOutage)
		if got > 80 {
			t.Errorf("%d messages were received", got)
		}
		for {
			s.mu.Lock()
			done := len(s.done)
			s.mu.Unlock()
			if done == 40 {
				break
			}
			all, err := r.Receive(t.Context(), 10, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				if err := m.Ack(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		s.want(t, 40, 0, outageAndBack...)
	})
}

// Too many dead letters pause the intake, and single messages show when it is over.
func TestAFloodOfDeadLettersPauses(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.set(redeliver.Permanent(errors.New("unknown version 2")))
		policy := redeliver.Policy{DeadLetterRate: redeliver.DeadLetterRate{Max: 30, Probes: 5}}
		b.Open(redelivertest.Config{Group: "billing", Policy: policy, Sink: s, MaxInFlight: 10}).Handle("orders", s.handle)
		publish(b, "m", 500, 0)
		<-time.After(10*time.Minute + 30*time.Second)
		s.mu.Lock()
		dead := len(s.dead)
		s.mu.Unlock()
		if dead < 31 || dead > 31+10+10 {
			t.Errorf("%d dead letters in 10 minutes", dead)
		}
		s.set(nil) // a new version was deployed
		b.Wait()
		s.want(t, 500-dead, dead, redeliver.ChangeFlood, redeliver.ChangeFloodOver)
	})
}

// One message that makes its whole batch fail is no outage, although the batch has more messages than an outage needs keys, and it
// sends no other message to the DLQ. When all batches fail, it is an outage.
func TestABatchThatFailsAsAWholeIsNoOutage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		client := b.Open(redelivertest.Config{Group: "billing", Policy: guarded(redeliver.OrderFirstAttempts), Sink: s})
		client.Handle("orders", must(middleware.Batch(redeliver.BatchConfig{Size: 50, Timeout: time.Second}, func(_ context.Context, mb *middleware.MessageBatch) error {
			for _, m := range mb.Messages {
				if err := s.handle(m.Record); err != nil {
					return err
				}
			}
			return nil
		})))
		s.own["bad-0"] = errors.New("no such card")
		publish(b, "bad", 1, 0)
		publish(b, "m", 49, 0)
		b.Wait()
		s.want(t, 49, 1)
		s.set(errAway)
		publish(b, "n", 1000, 0)
		<-time.After(10 * time.Minute)
		s.want(t, 49, 1, redeliver.ChangeOutage)
		s.set(nil)
		b.Wait()
		s.want(t, 1049, 1, outageAndBack...)
	})
}
