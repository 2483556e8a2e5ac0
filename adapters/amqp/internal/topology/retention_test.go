package topology

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
)

// A DLQ that was created with a retention was refused for configurations without one, although those accept any.
func TestExistingRetentionOfADLQIsKept(t *testing.T) {
	const said = "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'orders.dlq' in vhost '/': received none but current is the value '345600000' of type 'long'"
	refused := &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: said}
	args := amqp091.Table{layout.DeliveryLimit: int32(layout.NoLimit)}
	dlq := layout.Queue{Name: "orders.dlq", Kind: layout.DeadQueue, Args: args}
	if q, ok := withOtherArguments(dlq, refused); !ok || q.Args[amqp091.QueueMessageTTLArg] != int64(345600000) || q.Args[layout.DeliveryLimit] != int32(layout.NoLimit) || len(args) != 1 {
		t.Errorf("it is declared with %v, and redeliver's arguments are %v", q.Args, args)
	}
	asked := amqp091.Table{amqp091.QueueMessageTTLArg: int64(1000)}
	for name, q := range map[string]layout.Queue{
		"another retention": {Kind: layout.DeadQueue, Args: asked}, "a queue of waiting messages": {Kind: layout.RetryQueue, Args: args},
	} {
		if _, ok := withOtherArguments(q, refused); ok {
			t.Errorf("%s is accepted unchanged", name)
		}
	}
	for _, other := range []*amqp091.Error{nil, {Code: amqp091.PreconditionFailed, Reason: "inequivalent arg 'x-expires'"}, {Code: amqp091.AccessRefused, Reason: said}} {
		if _, ok := withOtherArguments(dlq, other); ok {
			t.Errorf("%v counts as another retention", other)
		}
	}
}

// A roll-back or a roll-forward meets queues with and without the arguments that only protect. A broker may not know them.
func TestQueuesWithoutWishedArgumentsAreAccepted(t *testing.T) {
	l := layout.New(layout.Options{Queue: "orders", Policy: redeliver.Policy{Order: redeliver.OrderBlocking}.WithDefaults()})
	const none, invalid = "inequivalent arg 'x-overflow' for queue 'q' in vhost '/': received the value 'reject-publish' of type 'longstr' but current is none", "invalid arg '%s' for queue 'q' in vhost '/': unknown"
	for reason, want := range map[string]map[layout.Kind]bool{
		none:                                      {layout.DeadQueue: true, layout.PlaceQueue: true},
		fmt.Sprintf(invalid, "x-overflow"):        {layout.DeadQueue: true, layout.PlaceQueue: true},
		fmt.Sprintf(invalid, "x-delivery-limit"):  {layout.RetryQueue: true, layout.SuspectQueue: true},
		fmt.Sprintf(invalid, "x-max-length"):      {layout.PauseQueue: true},
		fmt.Sprintf(invalid, "x-queue-type"):      {},
		fmt.Sprintf(invalid, "x-message-ttl"):     {},
		"inequivalent arg 'x-max-length' for 'q'": {},
	} {
		refused := &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: "PRECONDITION_FAILED - " + reason}
		for _, q := range l.Queues {
			other, ok := withOtherArguments(q, refused)
			if ok != want[q.Kind] || ok && len(other.Args) != len(q.Args)-1 {
				t.Errorf("%s, refused with %q: accepted %t with %v, want %t", q.Name, reason, ok, other.Args, want[q.Kind])
			}
		}
	}
}

// A DLQ may have any retention, by an argument or by a policy.
func TestDLQMayHaveAnyRetention(t *testing.T) {
	l := layout.New(layout.Options{
		Queue: "orders", Policy: redeliver.Policy{}.WithDefaults(), DeadLetters: deadletter.Config{Retention: 96 * time.Hour},
	})
	for _, q := range l.Queues {
		ttl, has := q.Args[amqp091.QueueMessageTTLArg]
		if q.Kind == layout.DeadQueue && ttl != (96*time.Hour).Milliseconds() || q.Kind != layout.DeadQueue && q.Kind != layout.DelayQueue && has {
			t.Errorf("%s has the TTL %v", q.Name, ttl)
		}
		why := forbiddenReason(q, management.Setting{Key: "message-ttl", Value: 1, By: "a policy"})
		if allowed := why == ""; allowed != (q.Kind == layout.DeadQueue) {
			t.Errorf("a policy's TTL on %s: %q", q.Name, why)
		}
	}
}
