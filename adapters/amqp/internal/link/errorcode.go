package link

import (
	"errors"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// ErrorCode returns the broker's error code, or 0 if the broker has not answered.
func ErrorCode(err error) int {
	if refused, ok := errors.AsType[*amqp091.Error](err); ok {
		return refused.Code
	}
	return 0
}

// IsNotFound reports whether the broker answered that the requested object does not exist.
func IsNotFound(err error) bool {
	refused, ok := errors.AsType[*amqp091.Error](err)
	return ok && refused.Code == amqp091.NotFound && !IsUnreachable(refused)
}

// IsUnreachable reports whether a queue exists but cannot be used now. RabbitMQ answers "not found" then too: the
// queue's node is down, the queue is about to stop or has crashed, or another client is declaring it. Only the text
// differs (rabbit_amqqueue).
func IsUnreachable(refused *amqp091.Error) bool {
	return refused.Code == amqp091.NotFound && slices.ContainsFunc([]string{
		"home node", "stopped by supervisor", "crashed and failed to restart", "timed out while", "may be stopping",
	}, func(text string) bool { return strings.Contains(refused.Reason, text) })
}
