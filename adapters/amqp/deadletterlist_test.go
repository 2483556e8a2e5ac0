package amqp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
)

// DeadLetterQueues finds the queue in the names of redeliver's DLQs. It lists DLQs with a cut name, or without a
// subscription, without their origin.
func TestDeadLetterQueuesListsDLQs(t *testing.T) {
	long, umlauts := strings.Repeat("x", 240), strings.Repeat("ü", 120)
	f := amqptest.API{Version: "3.10.8"}
	for _, name := range []string{"orders.dlq", "orders.retry", "shop.eu.orders.dlq", "shop.eu.orders.retry", "payments.dlq", "dlq", "orders", ".dlq", ".retry"} {
		f.Queues = append(f.Queues, amqptest.Fields{"name": name})
	}
	for _, queue := range []string{long, umlauts} {
		f.Queues = append(f.Queues, amqptest.Fields{"name": layout.Names{}.DLQOf(queue)}, amqptest.Fields{"name": layout.Names{}.RetryOf(queue)})
	}
	c := &client{cfg: Config{
		URLs: []string{"amqp://guest:guest@localhost/"}, ManagementURL: f.Start(t),
	}.withDefaults()}
	all, err := c.DeadLetterQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, info := range all {
		got[info.DLQ] = info.Origin + "/" + info.Group + "/" + info.ReplayTo
	}
	want := map[string]string{
		"orders.dlq": "orders/orders/orders.retry", "shop.eu.orders.dlq": "shop.eu.orders/shop.eu.orders/shop.eu.orders.retry",
		"payments.dlq": "//", ".dlq": "//", layout.Names{}.DLQOf(long): "//", layout.Names{}.DLQOf(umlauts): "//",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they are\n%v, want\n%v", got, want)
	}
	c.cfg.ManagementURL = ""
	if _, err := c.DeadLetterQueues(t.Context()); !errors.Is(err, ErrNoManagement) {
		t.Errorf("without the management API: %v", err)
	}
}
