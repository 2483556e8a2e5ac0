package redelivertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/redelivertest"
)

// watcher is a sink that watches the load.
type watcher struct{ load func() observe.Load }

func (*watcher) Event(redeliver.Event) {}

func (w *watcher) Watch(_, _ string, load func() observe.Load) (end func()) {
	w.load = load
	return nil
}

// A subscriber returns its held messages when it closes, although it then waits for handlers. The load does not
// include them any more.
func TestHeldMessagesAreReturnedAtTheEnd(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		w, gate := &watcher{}, make(chan struct{})
		c := b.Open(redelivertest.Config{Group: "billing", Sink: w, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour)}})
		c.Handle("orders", func(m *message.Message) error {
			if m.UUID == "fails" {
				return errDown
			}
			<-gate
			return nil
		})
		b.Publish("orders", msg("fails"), msg("runs"))
		synctest.Wait()
		want := func(what string, want observe.Load) {
			t.Helper()
			if got := w.load(); got != want {
				t.Errorf("%s the load is %+v, want %+v", what, got, want)
			}
		}
		want("before it closes", observe.Load{InFlight: 1, Held: 1})
		over := make(chan error)
		go func() { over <- c.Close(context.Background()) }()
		synctest.Wait()
		want("while it waits for the handler", observe.Load{InFlight: 1})
		close(gate)
		if err := <-over; err != nil {
			t.Error(err)
		}
		want("at the end", observe.Load{})
	})
}
