package link

import (
	"cmp"
	"errors"
	"fmt"
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

// connectError is an error of a try to connect.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// isConnectError reports whether no connection could be made.
func isConnectError(err error) bool {
	_, ok := errors.AsType[*connectError](err)
	return ok
}

// RefusalToConnect returns the code with which the broker refuses a connection, or 0: the login, or a limit on connections
// and channels, whose excess ends the connection.
func RefusalToConnect(err error) int {
	if code := ErrorCode(err); code == amqp091.NotAllowed || code != 0 && isConnectError(err) {
		return code
	}
	return 0
}

// IsAnswer reports whether err is the broker's answer to a request that it understood. Other errors concern the connection.
func IsAnswer(err error) bool {
	return slices.Contains([]int{amqp091.AccessRefused, amqp091.NotFound, amqp091.ResourceLocked, amqp091.PreconditionFailed}, ErrorCode(err)) && !isConnectError(err)
}

// The methods of AMQP that a broker may deny.
const (
	MethodAck     = "basic.ack"
	MethodConsume = "basic.consume"
	MethodDeclare = "queue.declare"
	MethodGet     = "basic.get"
	MethodPublish = "basic.publish"
)

// deniedError is a denial with its request and the right that it needs.
type deniedError struct{ error }

func (e *deniedError) Unwrap() error { return e.error }

// DescribeDenial adds to a denial which request it is about, and which right that needs. It returns any other error as it is.
func DescribeDenial(method, place string, err error) error {
	if _, done := errors.AsType[*deniedError](err); done || !IsDenied(err) {
		return err
	}
	right := cmp.Or(map[string]string{MethodDeclare: "configure", MethodPublish: "write"}[method], "read")
	need := fmt.Sprintf("the user needs the right to %s it (rabbitmqctl set_permissions)", right)
	switch refused, _ := errors.AsType[*amqp091.Error](err); {
	case strings.Contains(refused.Reason, "access to topic '"):
		need = "the user needs the right to write with this routing key (rabbitmqctl set_topic_permissions)"
	case IsExclusive(refused):
		need = "another consumer reads it exclusively: end that one"
	}
	return &deniedError{fmt.Errorf("%s on %s is denied: %w; %s", method, place, err, need)}
}

// IsExclusive reports whether a queue cannot be read because another consumer reads it exclusively. RabbitMQ answers as to a
// missing right. Only the text differs.
func IsExclusive(refused *amqp091.Error) bool {
	return strings.HasSuffix(refused.Reason, "in exclusive use")
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
