package topology

import (
	"maps"
	"sync/atomic"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
)

// The answers are from RabbitMQ 3.10 and 4.0.
func TestApplyDifference(t *testing.T) {
	const begin = "PRECONDITION_FAILED - inequivalent arg "
	for _, row := range []struct {
		args   amqp091.Table
		reason string
		want   amqp091.Table // nil: it cannot be read
	}{
		{amqp091.Table{}, begin + "'x-max-length' for queue 'q' in vhost '/': received none but current is the value '10' of type 'signedint'", amqp091.Table{"x-max-length": int64(10)}},
		{amqp091.Table{}, begin + "'x-overflow' for queue 'q' in vhost '/': received none but current is the value 'reject-publish' of type 'longstr'", amqp091.Table{"x-overflow": "reject-publish"}},
		{amqp091.Table{}, begin + `'x-dead-letter-routing-key' for queue 'q' in vhost '/': received none but current is the value 'it's "theirs"' of type 'longstr'`, amqp091.Table{"x-dead-letter-routing-key": `it's "theirs"`}},
		{amqp091.Table{"a": 1}, begin + "'a' for queue 'q' in vhost '/': received the value '1' of type 'long' but current is none", amqp091.Table{}},
		{amqp091.Table{}, begin + "'a' for queue 'q' in vhost '/': received none but current is none", nil},
		{amqp091.Table{}, begin + "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'", amqp091.Table{"x-queue-type": "quorum"}},
		{amqp091.Table{"k": "a"}, begin + "'k' for queue 'q' in vhost '/': received 'a' but current is 'it's b'", amqp091.Table{"k": "it's b"}},
		{amqp091.Table{}, begin + "'b' for queue 'q' in vhost '/': received none but current is the value 'true' of type 'bool'", amqp091.Table{"b": true}},
		{amqp091.Table{}, begin + "'b' for queue 'q' in vhost '/': received none but current is the value 'a name that is too lo...", nil},
		{amqp091.Table{}, "ACCESS_REFUSED - no", nil},
	} {
		if ok := applyDifference(row.args, row.reason); ok != (row.want != nil) || ok && !maps.Equal(row.args, row.want) {
			t.Errorf("%s: %v, %v; want %v", row.reason, row.args, ok, row.want)
		}
	}
}

// RabbitMQ's refusals are text for people. Parsing one yields an argument or nothing.
func FuzzLearn(f *testing.F) {
	f.Add("PRECONDITION_FAILED - inequivalent arg 'x-single-active-consumer' for queue 'orders' in vhost '/': received none but current is the value 'true' of type 'bool'")
	f.Add("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'orders' in vhost '/': received the value '5' of type 'signedint' but current is the value '99999999999999999999' of type 'long'")
	f.Add("inequivalent arg 'durable' for queue 'o'n' in vhost '/': received 'true' but current is 'false'")
	f.Add("inequivalent arg 'x' for: received none but current is none")
	f.Fuzz(func(t *testing.T, reason string) {
		args := amqp091.Table{"x": "y"}
		before := len(args)
		if !applyDifference(args, reason) && (len(args) != before || args["x"] != "y") {
			t.Errorf("%q has no argument and changed %v", reason, args)
		}
		if err := args.Validate(); err != nil {
			t.Errorf("%q: %v", reason, err)
		}
	})
}

// A queue may be deleted while its arguments are read. Once the broker has answered that it exists, a declaration may create it,
// with arguments that its owner did not choose. So the broker gets the question and the declaration at once.
func TestReadingTheArgumentsOfAQueueDoesNotCreateIt(t *testing.T) {
	t.Parallel()
	w := amqptest.NewServer(t)
	var deleted atomic.Bool
	var declared atomic.Int64
	w.Declares = func(queue string, passive, noWait bool) {
		switch {
		case passive:
			deleted.Store(!noWait) // after the answer
		case deleted.Load():
			t.Errorf("%s is declared although it may have been deleted", queue)
		default:
			declared.Add(1)
		}
	}
	l := link.New(link.Options{URLs: []string{"amqp://guest:guest@localhost/"}, AMQP: amqp091.Config{Dial: w.Dialer(t)}})
	t.Cleanup(l.Close)
	d := (&Broker{Consuming: l}).Declarer(t.Context())
	defer d.Close()
	info, why := d.readArguments(management.QueueInfo{Name: "orders", Durable: true})
	if d.err != nil || why != "" || info.Name != "orders" || declared.Load() != 1 {
		t.Errorf("%+v, %q, %v, compared %d times", info, why, d.err, declared.Load())
	}
}
