package sqs

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// On a FIFO queue the next attempt does not run beside a handler that returns soon after its timeout.
func TestFIFOAttemptsDoNotOverlapAfterATimeout(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		p := steps(3, 10*time.Millisecond)
		p.Timeout = time.Second
		var running, overlaps atomic.Int64
		c := b.start("one", "orders.fifo", Config{Policy: p}, func(st redeliver.State, msg *message.Message) error {
			if running.Add(1) > 1 {
				overlaps.Add(1)
			}
			defer running.Add(-1)
			if st.Attempts == 0 {
				<-msg.Context().Done()
				<-time.After(500 * time.Millisecond)
				return errHandler
			}
			return nil
		})
		b.put("orders.fifo", "slow", "v", "g", nil)
		b.advance(time.Minute)
		if n := len(b.ran("slow")); n != 2 || overlaps.Load() > 0 {
			t.Errorf("%d attempts, %d beside another one", n, overlaps.Load())
		}
		b.close(c)
	})
}
