package amqp

import (
	"errors"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// errorCode is the code with which the broker has answered; 0 when it has not.
func errorCode(err error) int {
	if refused, ok := errors.AsType[*amqp091.Error](err); ok {
		return refused.Code
	}
	return 0
}

// isNotFound reports whether the broker has answered that what it was asked for does not exist.
func isNotFound(err error) bool {
	refused, ok := errors.AsType[*amqp091.Error](err)
	return ok && refused.Code == amqp091.NotFound && !isUnreachable(refused)
}

// isUnreachable reports whether a queue is there, and nobody can use it now. RabbitMQ says
// "not found" of it, too: its node is down, it is about to stop or has crashed, or, for a
// moment, somebody else declares it just now. Only the text differs (rabbit_amqqueue).
func isUnreachable(refused *amqp091.Error) bool {
	return refused.Code == amqp091.NotFound && slices.ContainsFunc([]string{
		"home node", "stopped by supervisor", "crashed and failed to restart", "timed out while", "may be stopping",
	}, func(text string) bool { return strings.Contains(refused.Reason, text) })
}
