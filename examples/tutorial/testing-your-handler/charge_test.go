package billing

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestABankThatOpensInFortyMinutes(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		opens := time.Now().Add(40 * time.Minute)
		biller := Biller{Bank: func(string) error {
			if time.Now().Before(opens) {
				return errors.New("bank is closed")
			}
			return nil
		}}
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: Policy})
		orders := billing.Handle("orders", biller.Charge)

		b.Publish("orders", message.NewMessage("4711", []byte("card-17")))

		got := orders.Outcome("4711") // waits until nothing is left to do
		if !got.Committed || len(got.Attempts) != 4 || got.Took != 71*time.Minute {
			t.Error(got)
		}
		t.Log(got)
	})
}

func TestAnUnknownCardGoesToTheDLQAtOnce(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		biller := Biller{Bank: func(string) error { return ErrNoSuchCard }}
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: Policy}).Handle("orders", biller.Charge)

		b.Publish("orders", message.NewMessage("4711", []byte("card-17")))

		dead := orders.DeadLetters()
		if len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonPermanent || dead[0].State.Attempts != 1 {
			t.Errorf("the DLQ has %v", dead)
		}
	})
}
