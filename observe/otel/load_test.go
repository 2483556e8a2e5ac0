package otel_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

// While two handlers block, two messages are in flight, and one that waits for its retry is held.
func TestLoadIsRequestedAtEachCollection(t *testing.T) {
	s, r := newSink(t)
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		gate := make(chan struct{})
		c := b.Open(redelivertest.Config{Group: "billing", Sink: s, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(10 * time.Second)}})
		orders := c.Handle("orders", func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "fails" && st.Attempt() == 1 {
				return errDeclined
			}
			<-gate
			return nil
		})
		synctest.Wait()
		wantCollected(t, r, `
			redeliver.held_messages{us} 0
			redeliver.in_flight_messages{us} 0`)
		for _, id := range []string{"one", "two", "fails"} {
			b.Publish("orders", message.NewMessage(id, nil))
		}
		synctest.Wait()
		has(t, r, "redeliver.held_messages{us} 1", "redeliver.in_flight_messages{us} 2")
		close(gate)
		for _, id := range []string{"one", "two", "fails"} {
			orders.Outcome(id)
		}
		synctest.Wait()
		has(t, r, "redeliver.held_messages{us} 0", "redeliver.in_flight_messages{us} 0")
	})
	for _, line := range collected(t, r) {
		if strings.HasPrefix(line, "redeliver.held") || strings.HasPrefix(line, "redeliver.in_flight") {
			t.Errorf("a subscription that has ended is still reported: %s", line)
		}
	}
}

// has fails the test if a reader does not collect at least these lines.
func has(t *testing.T, r *sdk.ManualReader, want ...string) {
	t.Helper()
	got := collected(t, r)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("collected\n  %s\nwithout %s", strings.Join(got, "\n  "), line)
		}
	}
}
