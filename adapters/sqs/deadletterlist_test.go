package sqs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/sqsfake"
)

// DeadLetterQueues finds the queue in the names of redeliver's DLQs. It lists DLQs with a cut name, or without a
// subscription, without their origin.
func TestDeadLetterQueuesListsDLQs(t *testing.T) {
	long := strings.Repeat("x", 75)
	f := newFake()
	f.Inject(func(call *sqsfake.Call) *sqsfake.Fault {
		call.In["MaxResults"] = 2.0 // small pages
		return nil
	})
	for _, name := range []string{
		"orders", "orders-dlq", "orders-suspects", "a-b.fifo", "a-b-dlq.fifo", "a-b-suspects.fifo", "payments", "payments-dlq", "gone-dlq", "gone-suspects", "-dlq", "dlq",
		long, Names{}.dlq(long), Names{}.suspects(long),
	} {
		f.Create(name)
	}
	all, err := f.client(t, Config{}).Operations().DeadLetterQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Count("ListQueues"); n < 8 {
		t.Errorf("the list has %d pages", n)
	}
	got := make(map[string]string)
	for _, info := range all {
		got[info.DLQ] = info.Origin + "/" + info.Group + "/" + info.ReplayTo
	}
	want := map[string]string{
		"orders-dlq": "orders/orders/orders", "a-b-dlq.fifo": "a-b.fifo/a-b.fifo/a-b.fifo", "payments-dlq": "//", "gone-dlq": "//", "-dlq": "//", Names{}.dlq(long): "//",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they are\n%v, want\n%v", got, want)
	}
}
