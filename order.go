package redeliver

import (
	"fmt"

	"github.com/redeliver/redeliver/internal/limits"
)

// Order says which messages of a subscription wait for others.
type Order uint8

// The orders.
const (
	// OrderFirstAttempts, the default: messages of one key run one after another, and later messages overtake one that has failed. Only
	// Kafka and SQS FIFO queues have keys. On a FIFO queue the key is the message group, which also waits for failed messages.
	OrderFirstAttempts Order = iota
	// OrderNone: any messages run at once, also those of one key.
	OrderNone
	// OrderBlocking: one message at a time runs, in the order of the partition or queue. A message that fails keeps its place: all
	// messages behind it wait until it succeeds or goes to the DLQ. Before each retry it waits for 10 ms to 30 s, 1 s by default.
	// This is the order of RocketMQ's ordered consumer.
	//
	// On Kafka the attempts are in the commits of the group, on RabbitMQ in a queue of notes. On other brokers the process counts
	// them in memory: after a restart they start again. A message that is nacked without an error, or whose handler does not return when its
	// Timeout is over, cannot keep its place: it waits and comes back as in other orders.
	OrderBlocking
	// OrderThroughRetries: messages of one key run one after another. When one fails, the later ones of its key wait behind it until it
	// succeeds or goes to the DLQ. Messages of other keys do not wait.
	OrderThroughRetries
)

func (o Order) String() string {
	switch o {
	case OrderFirstAttempts:
		return "OrderFirstAttempts"
	case OrderNone:
		return "OrderNone"
	case OrderBlocking:
		return "OrderBlocking"
	case OrderThroughRetries:
		return "OrderThroughRetries"
	default:
		return fmt.Sprintf("Order(%d)", uint8(o))
	}
}

// checkOrder adds problems for an unknown order, and for delays that OrderBlocking does not allow.
func (p Policy) checkOrder(ps *problems, field func(string) string) {
	if p.Order > OrderThroughRetries {
		ps.Add(field("Order"), p.Order, "must be OrderFirstAttempts, OrderNone, OrderBlocking or OrderThroughRetries")
	}
	if p.Order != OrderBlocking {
		return
	}
	delays, _, ok := p.Delays()
	if !ok {
		ps.Add(field("Backoff"), fmt.Sprintf("%T", p.Backoff), "must be able to list its delays: a blocking policy waits for 10ms to 30s")
		return
	}
	for i, longest := range p.LongestDelays() {
		if delays[i] < limits.MinBlock || longest > limits.MaxBlock {
			ps.Add(field("Backoff"), longest, "must wait for 10ms to 30s, jitter included, where Order is OrderBlocking, because all messages behind the failed one wait, too")
			return
		}
	}
}
