package topology

import (
	"maps"
	"regexp"
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
)

// isValue finds the existing value of an argument in RabbitMQ's refusal of a declaration.
var isValue = regexp.MustCompile(`current is the value '(\d+)'`)

// withExistingTTL returns the DLQ with its existing retention if the broker refused the declaration only for that. A
// configuration without DLQ.Retention accepts it; all other arguments must match.
func withExistingTTL(q layout.Queue, refused *amqp091.Error) (layout.Queue, bool) {
	if _, asked := q.Args[amqp091.QueueMessageTTLArg]; q.Kind != layout.DeadQueue || asked || !isInequivalent(refused, amqp091.QueueMessageTTLArg) {
		return q, false
	}
	is := isValue.FindStringSubmatch(refused.Reason)
	if is == nil {
		return q, false
	}
	ttl, err := strconv.ParseInt(is[1], 10, 64)
	if err != nil {
		return q, false
	}
	q.Args = maps.Clone(q.Args)
	q.Args[amqp091.QueueMessageTTLArg] = ttl
	return q, true
}
