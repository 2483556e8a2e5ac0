// Package billing is the handler of docs/tutorials/testing-your-handler.md.
package billing

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Policy is what the service gives to its broker's Config.
var Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Minute, 10*time.Minute, time.Hour)}

// ErrNoSuchCard is an error that no retry can fix.
var ErrNoSuchCard = errors.New("no such card")

// Biller charges cards at a bank.
type Biller struct{ Bank func(card string) error }

// Charge is the handler.
func (b Biller) Charge(msg *message.Message) error {
	err := b.Bank(string(msg.Payload))
	if errors.Is(err, ErrNoSuchCard) {
		return redeliver.Permanent(err)
	}
	return err
}
