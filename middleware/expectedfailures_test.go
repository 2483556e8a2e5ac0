//go:build prove

package middleware_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// Resequence does not see that a last attempt has ended where the handler panics: the message is in the DLQ, and its stream
// waits for it until Wait is over.
func TestExpectedFailureResequenceWaitsForAMessageThatPanicked(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		began := time.Now()
		var took time.Duration
		seq := middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered})
		b.Open(redelivertest.Config{Group: "search", MaxInFlight: 10, Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}).
			Handle("documents", func(msg *message.Message) error {
				if msg.UUID == "a/1" {
					panic("boom")
				}
				took = time.Since(began)
				return nil
			}, seq)
		publish(b, "a/1", "a/2")
		b.Wait()
		if most := middleware.DefaultResequenceWait / 2; took > most {
			t.Errorf("the message behind one that panicked at its last attempt ran after %s, want less than %s", took, most)
		}
	})
}
