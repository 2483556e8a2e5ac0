package link

import (
	"context"
	"errors"
	"testing"
)

// After its context has ended, a sender must not write the rest of its messages: nobody waits for their confirms, so
// all of them would be written again.
func TestSendAllWritesNothingAfterItsContext(t *testing.T) {
	s := NewSender(New(Options{})) // without a URL, each try to write fails with another error
	cause := errors.New("the time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for i, err := range s.SendAll(ctx, 100, func(int) (Outgoing, error) { return Outgoing{}, nil }) {
		if !errors.Is(err, cause) {
			t.Fatalf("message %d: %v, want %v", i, err, cause)
		}
	}
}
