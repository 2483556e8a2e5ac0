package pubsub

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// watchingSink watches one subscription.
type watchingSink struct {
	redeliver.Sink
	load func() observe.Load
}

func (a *watchingSink) Watch(_, _ string, load func() observe.Load) (end func()) {
	a.load = load
	return func() {}
}

// A message with a handler counts as in flight, and the head of a delay topic as held until it is due.
func TestLoadCountsInFlightAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemoryBroker().member(t, "billing"), &watchingSink{Sink: &recordingSink{}}
		cfg := checkConfig(m, m)
		cfg.MaxInFlight, cfg.Sink = 2, sink
		cfg.Policy = redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Minute)}
		gate := make(chan struct{})
		serve(t, cfg, func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "fails" && st.Attempt() == 1 {
				return errors.New("declined")
			}
			<-gate
			return nil
		})
		want := func(what string, want observe.Load) {
			t.Helper()
			synctest.Wait()
			if got := sink.load(); got != want {
				t.Errorf("%s: the load is %+v, want %+v", what, got, want)
			}
		}
		want("before there is a message", observe.Load{})
		for _, id := range []string{"fails", "one", "two", "left at the broker"} {
			m.m.put("orders", message.NewMessage(id, nil))
		}
		want("while two handlers run and a third message waits", observe.Load{InFlight: 2, Held: 1})
		<-time.After(2 * time.Minute)
		want("when its retry runs, too", observe.Load{InFlight: 3})
		close(gate)
		want("at the end", observe.Load{})
	})
}
