package amqp

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A connection that was closed while queues are declared is no fault of the
// configuration: whoever called tries again.
func TestAClosedConnectionRefusesNoQueue(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"closed by an administrator": {&amqp.Error{Code: amqp.ConnectionForced, Reason: "CONNECTION_FORCED - for a test", Server: true}, false},
		"closed here":                {amqp.ErrClosed, false},
		"cut":                        {errors.New("connection reset by peer"), false},
		"other arguments":            {&amqp.Error{Code: amqp.PreconditionFailed, Server: true, Recover: true}, true},
		"no such thing":              {&amqp.Error{Code: amqp.NotImplemented, Server: true}, true},
	} {
		d := &declarer{open: func() (*amqp.Channel, error) { return &amqp.Channel{}, nil }}
		refused := d.do(func(*amqp.Channel) error { return c.err })
		if (refused != nil) != c.refused || (d.err != nil) == c.refused {
			t.Errorf("%s: refused %v, the connection's error %v", name, refused, d.err)
		}
	}
}

// A broker in trouble is asked again, on a new channel; one that stays in trouble has
// refused nothing.
func TestABrokerInTroubleIsAskedAgain(t *testing.T) {
	trouble := &amqp.Error{Code: amqp.InternalError, Server: true, Reason: "INTERNAL_ERROR - Cannot declare quorum queue: cluster_not_formed"}
	for name, c := range map[string]struct {
		times int // that it is in trouble
		then  error
		err   bool
	}{
		"for a moment":     {2, nil, false},
		"and then refuses": {1, &amqp.Error{Code: amqp.PreconditionFailed, Server: true}, false},
		"for long":         {1000, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, asked := &declarer{open: func() (*amqp.Channel, error) { return &amqp.Channel{}, nil }}, 0
				refused := d.do(func(*amqp.Channel) error {
					if asked++; asked <= c.times {
						return trouble
					}
					return c.then
				})
				if (refused != nil) != (c.then != nil) || (d.err != nil) != c.err || asked != c.times+1 && !c.err {
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
func TestADeletionIsNotRepeated(t *testing.T) {
	d, asked := &declarer{open: func() (*amqp.Channel, error) { return &amqp.Channel{}, nil }}, 0
	refused := d.once(func(*amqp.Channel) error {
		asked++
		return &amqp.Error{Code: amqp.InternalError, Server: true}
	})
	if asked != 1 || refused != nil || d.err == nil {
		t.Errorf("asked %d times: refused %v, the error %v", asked, refused, d.err)
	}
}
