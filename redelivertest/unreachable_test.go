package redelivertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// errGone is the answer of a gateway whose handler is not there.
var errGone = errors.New("404 no such route")

// behindGateway returns a policy of four attempts within about seven seconds, whose handler is behind a gateway.
func behindGateway(order redeliver.Order) redeliver.Policy {
	return redeliver.Policy{
		Order:    order,
		Classify: func(err error) redeliver.Class { return redeliver.Class{Unreachable: errors.Is(err, errGone)} },
	}
}

// No handler is there for ten minutes. No attempt counts, the gateway is not overloaded, and processing continues when the handler is
// back. A process that starts in the middle of it knows nothing of the time before. With OrderBlocking the first message of the only
// partition is the only one that can run, so it may be the cause.
func TestAHandlerThatIsAwayDeadLettersNothing(t *testing.T) {
	noRetries := behindGateway(redeliver.OrderFirstAttempts)
	noRetries.MaxRetries = redeliver.NoRetries
	for name, c := range map[string]struct {
		policy         redeliver.Policy
		n, keys, batch int
		restart        bool
		dead           int
	}{
		"no keys":        {behindGateway(redeliver.OrderFirstAttempts), 1000, 0, 0, false, 0},
		"few messages":   {behindGateway(redeliver.OrderFirstAttempts), 2, 0, 0, false, 0},
		"keys":           {behindGateway(redeliver.OrderFirstAttempts), 1000, 100, 0, false, 0},
		"unordered":      {behindGateway(redeliver.OrderNone), 1000, 0, 0, false, 0},
		"per key":        {behindGateway(redeliver.OrderThroughRetries), 1000, 100, 0, false, 0},
		"blocking":       {behindGateway(redeliver.OrderBlocking), 1000, 100, 0, false, 2},
		"in batches":     {behindGateway(redeliver.OrderFirstAttempts), 1000, 0, 20, false, 0},
		"no retries":     {noRetries, 1000, 0, 0, false, 0},
		"with a restart": {behindGateway(redeliver.OrderFirstAttempts), 1000, 0, 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop()
				open := func() *redelivertest.Client {
					client := b.Open(redelivertest.Config{Group: "billing", Policy: c.policy, Sink: s, MaxInFlight: 100})
					if c.batch == 0 {
						client.Handle("orders", s.handle)
						return client
					}
					client.Handle("orders", must(middleware.Batch(redeliver.BatchConfig{Size: c.batch, Timeout: time.Second}, func(_ context.Context, mb *middleware.MessageBatch) error {
						return s.handle(mb.Messages[0].Record)
					})))
					return client
				}
				client := open()
				publish(b, "before", 500, c.keys)
				<-time.After(20 * time.Millisecond)
				s.set(errGone) // while some of them run
				publish(b, "m", c.n, c.keys)
				<-time.After(5 * time.Minute)
				if c.restart {
					if err := client.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					open()
				}
				<-time.After(5 * time.Minute)
				if n := s.between(10*time.Second, 5*time.Minute) + s.between(5*time.Minute+10*time.Second, 10*time.Minute); n > 50 {
					t.Errorf("%d attempts in ten minutes", n)
				}
				s.set(nil)
				back := time.Since(s.start)
				b.Wait()
				s.want(t, 500+c.n-c.dead, c.dead, s.reported...)
				if late := time.Since(s.start) - back; late > 60*time.Second {
					t.Errorf("all were handled %s after the handler was back", late)
				}
			})
		})
	}
}

// A handler that ends still answers what it has begun, while the gateway finds it no more. That is no sign that it is there.
func TestAHandlerThatEndsIsAwayAlthoughItAnswers(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		slow := make(map[string]time.Duration)
		for i := range 50 {
			slow[fmt.Sprint("slow-", i)] = time.Duration(i) * time.Second / 2
		}
		var gone atomic.Bool
		b.Open(redelivertest.Config{Group: "billing", Policy: behindGateway(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 50}).Handle("orders", func(msg *message.Message) error {
			if gone.Load() {
				return errGone
			}
			<-time.After(slow[msg.UUID])
			return nil
		})
		publish(b, "slow", 50, 0)
		<-time.After(time.Millisecond)
		gone.Store(true)
		publish(b, "m", 200, 0)
		<-time.After(time.Minute)
		gone.Store(false)
		b.Wait()
		s.want(t, 250, 0, s.reported...)
	})
}

// One message ends its worker whenever it runs, and others succeed. It is dead-lettered after its attempts, of which only the first
// did not count, and it delays no other message.
func TestAMessageThatEndsItsWorkerIsDeadLettered(t *testing.T) {
	for name, c := range map[string]struct {
		order redeliver.Order
		slots int
		every time.Duration // others come so often
	}{
		"many others":  {redeliver.OrderFirstAttempts, 50, 5 * time.Millisecond},
		"one slot":     {redeliver.OrderFirstAttempts, 1, 20 * time.Millisecond},
		"few others":   {redeliver.OrderFirstAttempts, 50, 900 * time.Millisecond},
		"keeps places": {redeliver.OrderThroughRetries, 50, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				s := newShop()
				b.Open(redelivertest.Config{Group: "billing", Policy: behindGateway(c.order), Sink: s, MaxInFlight: c.slots}).Handle("orders", s.handle)
				s.own["poison-0"] = errGone
				published := map[string]time.Duration{}
				for i := range 10_000 {
					if i == 5 {
						publish(b, "poison", 1, 0)
					}
					id := fmt.Sprint("m", i)
					published[id+"-0"] = time.Since(s.start)
					publish(b, id, 1, 0)
					if <-time.After(c.every); time.Since(s.start) > time.Minute {
						break
					}
				}
				b.Wait()
				s.want(t, len(published), 1)
				if st := s.dead["poison-0"]; st.Attempts != 4 || st.Reason != redeliver.ReasonExhausted || s.runs["poison-0"] != 5 {
					t.Errorf("it ran %d times, and its state is %+v", s.runs["poison-0"], st)
				}
				for id, at := range published {
					if took := s.done[id] - at; took > 2*20*time.Millisecond {
						t.Errorf("%s took %s", id, took)
					}
				}
			})
		})
	}
}

// A message that ends its worker and is the only one left is dead-lettered, too, but later.
func TestTheOnlyMessageEndsItsWorker(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		s.own["poison-0"] = errGone
		b.Open(redelivertest.Config{Group: "billing", Policy: behindGateway(redeliver.OrderFirstAttempts), Sink: s}).Handle("orders", s.handle)
		publish(b, "poison", 1, 0)
		b.Wait()
		s.want(t, 0, 1, redeliver.ChangeOutage)
		if runs := s.runs["poison-0"]; runs != 3+5+4 { // until the outage, its probes, and its attempts
			t.Errorf("it ran %d times", runs)
		}
		publish(b, "m", 50, 0)
		b.Wait()
		s.want(t, 50, 1, outageAndBack...)
	})
}

// A batch that ends its worker stops no other.
func TestABatchThatEndsItsWorker(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop()
		client := b.Open(redelivertest.Config{Group: "billing", Policy: behindGateway(redeliver.OrderFirstAttempts), Sink: s, MaxInFlight: 50})
		client.Handle("orders", must(middleware.Batch(redeliver.BatchConfig{Size: 20, Timeout: 100 * time.Millisecond}, func(_ context.Context, mb *middleware.MessageBatch) error {
			for _, m := range mb.Messages {
				if err := s.handle(m.Record); err != nil {
					return err
				}
			}
			return nil
		})))
		s.own["poison-0"] = errGone
		publish(b, "poison", 1, 0)
		for i := range 200 {
			publish(b, fmt.Sprint("m", i), 5, 0)
			<-time.After(100 * time.Millisecond)
		}
		b.Wait()
		if _, dead := s.dead["poison-0"]; !dead || len(s.dead) > 1 || len(s.reported) > 0 {
			t.Errorf("%d dead letters, reported %q", len(s.dead), s.reported)
		}
	})
}
