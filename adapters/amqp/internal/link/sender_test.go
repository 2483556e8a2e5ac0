package link

import (
	"context"
	"errors"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A refusal that names another exchange is repeated alone. The texts are those of RabbitMQ 3.10 and 4.0.
func TestRefusalsOfOtherExchanges(t *testing.T) {
	for _, row := range []struct {
		code     int
		reason   string
		exchange string
		want     bool
	}{
		{amqp091.NotFound, "NOT_FOUND - no exchange 'a' in vhost '/'", "a", false},
		{amqp091.NotFound, "NOT_FOUND - no exchange 'a' in vhost '/'", "b", true},
		{amqp091.NotFound, "NOT_FOUND - no exchange 'a' in vhost '/'", "", true},
		{amqp091.AccessRefused, "ACCESS_REFUSED - access to exchange 'a' in vhost '/' refused for user 'guest'", "b", true},
		{amqp091.AccessRefused, "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'guest'", "", false},
		{amqp091.NotFound, "NOT_FOUND - no exchange 'a name that is too lo...", "a name that is too long", false},
		{amqp091.ConnectionForced, "CONNECTION_FORCED - exchange 'a' in vhost '/'", "b", false},
	} {
		err := fmt.Errorf("publishing: %w", &amqp091.Error{Code: row.code, Reason: row.reason, Server: true})
		if got := isOfOtherExchange(err, row.exchange); got != row.want {
			t.Errorf("%q, for a message to %q: %t, want %t", row.reason, row.exchange, got, row.want)
		}
	}
}

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
