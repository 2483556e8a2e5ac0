package sqs

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// Watch implements [observe.LoadSink].
func (b *bubble) Watch(_, _ string, load func() observe.Load) (end func()) {
	b.setLoad(load)
	return func() { b.setLoad(nil) }
}

func (b *bubble) setLoad(load func() observe.Load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load = load
}

func (b *bubble) watched() func() observe.Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.load
}

// The messages behind the first of a group count as held while it runs and while it waits for its retry.
func TestLoadCountsHeldMessages(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		gate := make(chan struct{})
		for i := range 3 {
			b.put("orders.fifo", fmt.Sprint("m", i), "v", "g", nil)
		}
		b.put("orders.fifo", "other", "v", "h", nil)
		c := b.start("one", "orders.fifo", Config{Policy: steps(1, time.Minute)}, func(st redeliver.State, _ *message.Message) error {
			<-gate
			if st.ID == "m0" && st.Attempts == 0 {
				return errHandler
			}
			return nil
		})
		want := func(what string, want observe.Load) {
			b.Helper()
			b.advance(time.Second)
			if got := b.watched()(); got != want {
				b.Errorf("%s: the load is %+v, want %+v", what, got, want)
			}
		}
		want("while two groups run", observe.Load{InFlight: 2, Held: 2})
		close(gate)
		want("while the first of one waits", observe.Load{Held: 3})
		b.advance(2 * time.Minute)
		want("when all have run", observe.Load{})
		b.close(c)
		if b.watched() != nil {
			b.Error("the end of the subscription is not reported")
		}
	})
}
