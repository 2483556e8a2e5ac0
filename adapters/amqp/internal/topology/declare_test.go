package topology

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// If the connection is closed during declarations, the configuration is not wrong, and the caller tries again.
func TestClosedConnectionIsNoConfigError(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"closed by an administrator": {&amqp091.Error{Code: amqp091.ConnectionForced, Reason: "CONNECTION_FORCED - for a test", Server: true}, false},
		"closed here":                {amqp091.ErrClosed, false},
		"cut":                        {errors.New("connection reset by peer"), false},
		"other arguments":            {&amqp091.Error{Code: amqp091.PreconditionFailed, Server: true, Recover: true}, true},
		"no such thing":              {&amqp091.Error{Code: amqp091.NotImplemented, Server: true}, true},
	} {
		d := &Declarer{ctx: t.Context(), link: link.New(link.Options{}), open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}
		refused := d.run(func(*amqp091.Channel) error { return c.err })
		if (refused != nil) != c.refused || (d.err != nil) == c.refused {
			t.Errorf("%s: refused %v, the connection's error %v", name, refused, d.err)
		}
	}
}

// A broker error is retried on a new channel. If it stays, nothing was refused.
func TestBrokerErrorsAreRetried(t *testing.T) {
	unformed := &amqp091.Error{Code: amqp091.InternalError, Server: true, Reason: "INTERNAL_ERROR - Cannot declare quorum queue: cluster_not_formed"}
	// RabbitMQ 3.10 sent this answer to one of five services that started at once.
	unreachable := &amqp091.Error{Code: amqp091.NotFound, Server: true, Reason: "NOT_FOUND - home node 'rabbit@localhost' of durable queue 'loss.retry.200ms' in vhost '/' is down or inaccessible"}
	no := &amqp091.Error{Code: amqp091.PreconditionFailed, Server: true}
	for name, c := range map[string]struct {
		trouble *amqp091.Error
		times   int // times of the error
		then    error
		refused *amqp091.Error
		err     bool
	}{
		"for a moment":                    {unformed, 2, nil, nil, false},
		"and then refuses":                {unformed, 1, no, no, false},
		"for long":                        {unformed, 1000, nil, nil, true},
		"with one queue, for a moment":    {unreachable, 2, nil, nil, false},
		"with one queue and then refuses": {unreachable, 1, no, no, false},
		"with one queue, for long":        {unreachable, 1000, nil, unreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, asked := &Declarer{ctx: t.Context(), link: link.New(link.Options{}), open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}, 0
				refused := d.run(func(*amqp091.Channel) error {
					if asked++; asked <= c.times {
						return c.trouble
					}
					return c.then
				})
				if refused != c.refused || (d.err != nil) != c.err || asked != min(c.times, 3)+1 {
					t.Errorf("asked %d times: refused %v, the error %v", asked, refused, d.err)
				}
				if c.err && !strings.Contains(d.err.Error(), "cluster_not_formed") {
					t.Error(d.err)
				}
			})
		})
	}
}

// A call that may have succeeded is not repeated.
func TestDeletionIsNotRepeated(t *testing.T) {
	d, asked := &Declarer{ctx: t.Context(), link: link.New(link.Options{}), open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}, 0
	refused := d.runOnce(func(*amqp091.Channel) error {
		asked++
		return &amqp091.Error{Code: amqp091.InternalError, Server: true}
	})
	if asked != 1 || refused != nil || d.err == nil {
		t.Errorf("asked %d times: refused %v, the error %v", asked, refused, d.err)
	}
}

// An unreachable queue does not count as deleted. Otherwise it would be reported as missing and without waiting
// messages.
func TestUnreachableQueueExists(t *testing.T) {
	for reason, want := range map[string]bool{
		"NOT_FOUND - no queue 'orders' in vhost '/'":                                                      true,
		"NOT_FOUND - no exchange 'orders' in vhost '/'":                                                   true,
		"NOT_FOUND - home node 'rabbit@a' of durable queue 'orders' in vhost '/' is down or inaccessible": false,
		"NOT_FOUND - queue 'orders' in vhost '/' process is stopped by supervisor":                        false,
	} {
		answer := &amqp091.Error{Code: amqp091.NotFound, Server: true, Reason: reason}
		if link.IsNotFound(fmt.Errorf("asking: %w", answer)) != want {
			t.Errorf("%s: gone is %t", reason, !want)
		}
	}
}
