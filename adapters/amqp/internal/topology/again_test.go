package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
)

// A policy that comes after the start is found by the regular check. A check before the queue is read again asks only for
// its arguments, which are as before.
func TestAPolicyAfterTheStartIsFound(t *testing.T) {
	w := amqptest.NewServer(t)
	newLink := func() *link.Link {
		l := link.New(link.Options{URLs: []string{"amqp://guest:guest@localhost/"}, AMQP: amqp091.Config{Dial: w.Dialer(t)}})
		t.Cleanup(l.Close)
		return l
	}
	b := &Broker{Consuming: newLink(), Publishing: newLink(), DialTimeout: 10 * time.Second, ConsumerTimeout: 30 * time.Minute}
	ask := func(policies ...amqptest.Fields) {
		api := amqptest.API{Version: "3.10.8", Policy: policies}
		b.Management = management.New(api.Start(t), "amqp://guest:guest@localhost/", amqp091.Config{})
	}
	l := layout.New(layout.Options{Topic: "orders", Queue: "orders", Policy: redeliver.Policy{}.WithDefaults()})
	var o Origin
	ask()
	for name, check := range map[string]func() error{
		"before it is read": func() error { return b.CheckOrigin(t.Context(), l, &o) },
		"regularly":         func() error { return b.CheckAgain(t.Context(), l, &o) },
	} {
		if err := check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o.Expires {
		t.Error("the queue expires")
	}
	ask(amqptest.Policy("idle", "^orders", amqptest.Fields{"expires": 60_000}, nil))
	if err := b.CheckOrigin(t.Context(), l, &o); err != nil || o.Expires {
		t.Errorf("unchanged arguments: %v; it expires: %t", err, o.Expires)
	}
	err := b.CheckAgain(t.Context(), l, &o)
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "orders.retry is expires=60000") || !o.Expires {
		t.Errorf("the regular check: %v; it expires: %t", err, o.Expires)
	}
	ask()
	if err := b.CheckOrigin(t.Context(), l, &o); err != nil || o.Expires { // after a problem everything is asked for again
		t.Errorf("without the policy: %v; it expires: %t", err, o.Expires)
	}
}
