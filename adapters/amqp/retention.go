package amqp

import (
	"maps"
	"regexp"
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// isValue finds the value of an argument in RabbitMQ's refusal to declare a queue that has another.
var isValue = regexp.MustCompile(`current is the value '(\d+)'`)

// existing is the DLQ with the retention that it was created with, where the broker refuses it for that alone. Whoever sets no
// DLQ.Retention takes what is there; all other arguments must be ours.
func (q ownQueue) withExistingTTL(refused *amqp091.Error) (ownQueue, bool) {
	if _, asked := q.args[amqp091.QueueMessageTTLArg]; q.kind != deadQueue || asked || !isInequivalent(refused, amqp091.QueueMessageTTLArg) {
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
	q.args = maps.Clone(q.args)
	q.args[amqp091.QueueMessageTTLArg] = ttl
	return q, true
}
