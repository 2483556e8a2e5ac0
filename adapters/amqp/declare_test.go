package amqp

import (
	"errors"
	"testing"

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
