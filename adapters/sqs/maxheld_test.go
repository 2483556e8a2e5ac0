package sqs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
)

// Held messages are bounded by number and by size. The others stay in the queue.
func TestHeldMessagesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		limit func(*maxHeld)
		most  int
	}{
		"messages": {func(l *maxHeld) { l.messages = 57 }, 57},
		"bytes":    {func(l *maxHeld) { l.bytes = 57 << 10 }, 57},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders.fifo", "MaximumMessageSize", "1024")
				body := strings.Repeat("x", 1024-len(UUIDAttribute)-len(wire.StringType)-len("m000"))
				cl := b.client(b.T, Config{Policy: steps(1, 10*time.Minute), Sink: b})
				c.limit(&brokerOf(cl).maxHeld)
				b.read(cl, "one", "orders.fifo", failHandler)
				for i := range 200 { // each in its own group
					b.put("orders.fifo", fmt.Sprintf("m%03d", i), body, fmt.Sprint("g", i), nil)
				}
				b.advance(time.Minute)
				if n := len(b.ran("")); n > c.most || n < c.most-api.MaxBatch {
					b.Errorf("%d messages are held, want %d, or up to ten less", n, c.most)
				}
				b.advance(time.Hour) // five waves of 47 to 57, one after another
				if n := len(b.Messages("orders-dlq.fifo")); n != 200 || len(b.ran("")) != 400 {
					b.Errorf("%d of 200 messages are in the DLQ after %d attempts", n, len(b.ran("")))
				}
				b.close(cl)
			})
		})
	}
}

// The default limit has room for all messages that may be in flight.
func TestDefaultHeldLimit(t *testing.T) {
	small, large := (Config{}).withDefaults(), (Config{MaxInFlight: maxInFlight}).withDefaults()
	if got := small.maxHeld(); got != (maxHeld{defaultMaxHeldMessages, defaultMaxHeldBytes}) {
		t.Errorf("the default is %+v", got)
	}
	if got := large.maxHeld().messages; got < 2*maxInFlight {
		t.Errorf("%d held messages for %d in flight", got, 2*maxInFlight)
	}
	// A receive of ten messages of SQS's largest size fits.
	if got := (maxHeld{defaultMaxHeldMessages, defaultMaxHeldBytes}).room(0, 0, maxMessageSize); got < api.MaxBatch {
		t.Errorf("room for %d", got)
	}
}

// A message without room for the state waits hidden, which SQS allows for twelve hours. After a longer wait it goes
// to the DLQ as it is.
func TestFullMessageWaitsAtMostTwelveHours(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MaximumMessageSize", "4096")
		body := strings.Repeat("x", 4096-len(UUIDAttribute)-len(wire.StringType)-1)
		c := b.start("one", "orders", Config{Policy: steps(3, time.Hour)}, func(redeliver.State, *message.Message) error {
			return redeliver.RetryAfter(errHandler, 12*time.Hour)
		})
		b.put("orders", "a", body, "", nil)
		b.advance(time.Minute)
		b.close(c)
		if dead := b.Messages("orders-dlq"); len(dead) != 1 || dead[0].Body != body || len(b.Messages("orders")) != 0 {
			b.Errorf("%d messages are in the DLQ, %d remain", len(dead), len(b.Messages("orders")))
		}
		if letters := eventsOf[redeliver.DeadLettered](b); len(letters) != 1 || letters[0].State.Reason != redeliver.ReasonUnschedulable {
			b.Errorf("it says %+v", letters)
		}
	})
}
