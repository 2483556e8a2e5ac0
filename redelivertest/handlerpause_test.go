package redelivertest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

// A pause that a handler asks for ends with the first probe whose handler answers without another one, whatever it answers.
func TestAPauseOfAHandlerEndsWithTheFirstAnswer(t *testing.T) {
	failed := errors.New("card declined")
	for name, answer := range map[string]error{"success": nil, "failure": failed, "permanent": redeliver.Permanent(failed), "at fault": errAtFault} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				policy := redeliver.Policy{MaxRetries: 1, Classify: func(err error) redeliver.Class {
					return redeliver.Class{MessageAtFault: errors.Is(err, errAtFault)}
				}}
				first := true
				orders := b.Open(redelivertest.Config{Group: "billing", Policy: policy}).Handle("orders", func(*message.Message) error {
					if first {
						first = false
						return redeliver.Pause(failed, time.Minute)
					}
					return answer
				})
				b.Publish("orders", message.NewMessage("one", nil))
				orders.Outcome("one")
				var changes []redeliver.Change
				for _, e := range orders.Events() {
					if c, ok := e.(redeliver.SubscriptionChanged); ok && (c.Change == redeliver.ChangePaused || c.Change == redeliver.ChangeResumed) {
						changes = append(changes, c.Change)
					}
				}
				if want := []redeliver.Change{redeliver.ChangePaused, redeliver.ChangeResumed}; !slices.Equal(changes, want) {
					t.Errorf("reported %q, want %q", changes, want)
				}
			})
		})
	}
}

var errAtFault = errors.New("an order without a card")
