package redelivertest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// With DLQ.Discard a message that will not be retried is reported and acked, and does not go to a DLQ.
func TestADiscardedMessageIsReportedAndAcked(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Second)}
		c := b.Open(redelivertest.Config{Group: "billing", Policy: policy, DLQ: deadletter.Config{Discard: true}})
		declined := errors.New("card declined")
		orders := c.Handle("orders", func(msg *message.Message) error {
			if msg.UUID == "good" {
				return nil
			}
			return declined
		})
		b.Publish("orders", message.NewMessage("bad", nil), message.NewMessage("good", nil))
		got := orders.Outcome("bad")
		if got.Committed || len(got.Attempts) != 3 || got.State.Reason != redeliver.ReasonExhausted {
			t.Error(got)
		}
		if !orders.Outcome("good").Committed {
			t.Error("the other message was not committed")
		}
		var reported []redeliver.Discarded
		for _, e := range orders.Events() {
			switch e := e.(type) {
			case redeliver.Discarded:
				reported = append(reported, e)
			case redeliver.DeadLettered:
				t.Errorf("dead-lettered: %+v", e)
			}
		}
		if len(reported) != 1 || reported[0].State.ID != "bad" || reported[0].State.Attempts != 3 || !errors.Is(reported[0].Err, declined) {
			t.Errorf("discarded: %+v", reported)
		}
		if dead := orders.DeadLetters(); len(dead) > 0 {
			t.Errorf("the DLQ has %+v", dead)
		}
	})
}
