package amqp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A connection that was closed while queues are declared is no fault of the
// configuration: whoever called tries again.
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
		d := &declarer{open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}
		refused := d.run(func(*amqp091.Channel) error { return c.err })
		if (refused != nil) != c.refused || (d.err != nil) == c.refused {
			t.Errorf("%s: refused %v, the connection's error %v", name, refused, d.err)
		}
	}
}

// A broker in trouble is asked again, on a new channel; one that stays in trouble has
// refused nothing.
func TestBrokerErrorsAreRetried(t *testing.T) {
	unformed := &amqp091.Error{Code: amqp091.InternalError, Server: true, Reason: "INTERNAL_ERROR - Cannot declare quorum queue: cluster_not_formed"}
	// What RabbitMQ 3.10 told one of five services that started at once.
	homeless := &amqp091.Error{Code: amqp091.NotFound, Server: true, Reason: "NOT_FOUND - home node 'rabbit@localhost' of durable queue 'loss.retry.200ms' in vhost '/' is down or inaccessible"}
	no := &amqp091.Error{Code: amqp091.PreconditionFailed, Server: true}
	for name, c := range map[string]struct {
		trouble *amqp091.Error
		times   int // that it is in trouble
		then    error
		refused *amqp091.Error
		err     bool
	}{
		"for a moment":                    {unformed, 2, nil, nil, false},
		"and then refuses":                {unformed, 1, no, no, false},
		"for long":                        {unformed, 1000, nil, nil, true},
		"with one queue, for a moment":    {homeless, 2, nil, nil, false},
		"with one queue and then refuses": {homeless, 1, no, no, false},
		"with one queue, for long":        {homeless, 1000, nil, homeless, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, asked := &declarer{open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}, 0
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

// What may have been done is not done again.
func TestDeletionIsNotRepeated(t *testing.T) {
	d, asked := &declarer{open: func() (*amqp091.Channel, error) { return &amqp091.Channel{}, nil }}, 0
	refused := d.runOnce(func(*amqp091.Channel) error {
		asked++
		return &amqp091.Error{Code: amqp091.InternalError, Server: true}
	})
	if asked != 1 || refused != nil || d.err == nil {
		t.Errorf("asked %d times: refused %v, the error %v", asked, refused, d.err)
	}
}

// A queue that cannot be reached is not taken for one that was deleted: it would be called
// missing, and nothing would be said to wait on it.
func TestUnreachableQueueExists(t *testing.T) {
	for reason, want := range map[string]bool{
		"NOT_FOUND - no queue 'orders' in vhost '/'":                                                      true,
		"NOT_FOUND - no exchange 'orders' in vhost '/'":                                                   true,
		"NOT_FOUND - home node 'rabbit@a' of durable queue 'orders' in vhost '/' is down or inaccessible": false,
		"NOT_FOUND - queue 'orders' in vhost '/' process is stopped by supervisor":                        false,
	} {
		answer := &amqp091.Error{Code: amqp091.NotFound, Server: true, Reason: reason}
		if isNotFound(fmt.Errorf("asking: %w", answer)) != want {
			t.Errorf("%s: gone is %t", reason, !want)
		}
	}
}
