package redelivertest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

// heard are the ends of a broadcast consumer's messages.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) Event(e redeliver.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e := e.(type) {
	case redeliver.Committed:
		h.all = append(h.all, e.State.ID)
	case redeliver.BroadcastFailed:
		h.all = append(h.all, e.State.ID+" "+string(e.State.Reason))
	}
}

// sorted are they in any order.
func (h *heard) sorted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.all))
}

// Every consumer gets what is published from its Subscribe on; one that hears it beside a
// group takes nothing from it, and Wait waits for all of them.
func TestABroadcast(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		b.Publish("prices", message.NewMessage("before", nil))
		ran := 0
		b.Open(redelivertest.Config{Group: "billing"}).Handle("prices", func(*message.Message) error { ran++; return nil })
		sinks := []*heard{{}, {}}
		var consumers []*redelivertest.Broadcast
		for _, sink := range sinks {
			c := b.OpenBroadcast(redelivertest.BroadcastConfig{Sink: sink, Policy: redeliver.Policy{Timeout: time.Minute}})
			consumers = append(consumers, c)
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			router.AddConsumerHandler("h", "prices", c, func(msg *message.Message) error {
				switch msg.UUID {
				case "fails":
					return errors.New("no")
				case "slow":
					<-time.After(30 * time.Second)
				case "hangs":
					<-msg.Context().Done()
				}
				return nil
			})
			b.Start(router)
		}
		b.Publish("prices", message.NewMessage("fails", nil), message.NewMessage("slow", nil), message.NewMessage("hangs", nil), message.NewMessage("fine", nil))
		b.Wait()
		if took := b.Elapsed(); took != time.Minute || ran != 5 {
			t.Errorf("at rest after %s, the group ran %d", took, ran)
		}
		for _, sink := range sinks {
			if got, want := sink.sorted(), []string{"fails exhausted", "fine", "hangs timeout", "slow"}; !slices.Equal(got, want) {
				t.Errorf("ends %q, want %q", got, want)
			}
		}
		if err := consumers[0].Close(); err != nil {
			t.Error(err)
		}
		b.Publish("prices", message.NewMessage("late", nil))
		b.Wait() // and not for who is gone
		if first, second := sinks[0].sorted(), sinks[1].sorted(); len(first) != 4 || !slices.Contains(second, "late") {
			t.Errorf("ends %q and %q", first, second)
		}
		if _, err := consumers[0].Subscribe(context.Background(), "prices"); err == nil {
			t.Error("a closed consumer subscribes")
		}
	})
}
