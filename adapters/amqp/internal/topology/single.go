package topology

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/internal/check"
)

// A queue with a single active consumer delivers to one of its consumers. When the channel of that one ends, the next
// consumer gets the channel's unacked messages first, in order. AMQP does not report a queue's arguments. But
// RabbitMQ compares a declaration with the existing queue argument by argument, and answers with the first that
// differs and its value. It does not compare policies.

// maxCompared is about how many arguments RabbitMQ compares.
const maxCompared = 30

// readArguments finds out the arguments of the existing queue, as far as RabbitMQ compares them. It declares nothing,
// because the queue exists. The fewer of them differ from guess, the fewer errors are in the broker's log. why is not empty
// if it failed.
func (d *Declarer) readArguments(guess management.QueueInfo) (there management.QueueInfo, why string) {
	q, there := guess, management.QueueInfo{Name: guess.Name, Type: amqp091.QueueTypeClassic, Durable: guess.Durable, AutoDelete: guess.AutoDelete}
	args := amqp091.Table{}
	maps.Copy(args, amqp091.Table(guess.Arguments))
	for range maxCompared {
		refused := d.run(func(ch *amqp091.Channel) error {
			// If the queue was deleted, the broker closes the channel here, and must not get the declaration, which would create
			// the queue. It gets both at once: nobody can delete the queue while the client waits for an answer.
			if _, err := ch.QueueDeclarePassive(q.Name, true, false, false, true, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclare(q.Name, there.Durable, there.AutoDelete, false, false, args)
			return err
		})
		switch {
		case d.err != nil || refused == nil:
			there.Arguments = management.Object(args)
			if kind, ok := args[amqp091.QueueTypeArg].(string); ok {
				there.Type = kind
			}
			return there, ""
		case isInequivalent(refused, "durable") && there.Durable == guess.Durable:
			there.Durable = !guess.Durable
		case isInequivalent(refused, "auto_delete") && there.AutoDelete == guess.AutoDelete:
			there.AutoDelete = !guess.AutoDelete
		case !applyDifference(args, refused.Reason):
			return there, refused.Reason
		}
	}
	return there, "too many arguments differ"
}

// differingValue matches RabbitMQ's answer about a differing argument: its name and its value, if it has one.
var differingValue = regexp.MustCompile(`inequivalent arg '([^']+)' .* but current is (?:none|the value '(.*)' of type '([a-z]+)'|'(.*)')$`)

// differingName matches only the name, because RabbitMQ cuts its answers after 255 bytes.
var differingName = regexp.MustCompile(`inequivalent arg '([^']+)'`)

// applyDifference sets the argument that a refusal is about. It returns false if the refusal cannot be read.
func applyDifference(args amqp091.Table, reason string) bool {
	found := differingValue.FindStringSubmatch(reason)
	if found == nil {
		cut := differingName.FindStringSubmatch(reason)
		if cut == nil {
			return false
		}
		_, ours := args[cut[1]]
		delete(args, cut[1]) // a shorter answer has more room for the other value
		return ours
	}
	name, value, kind := found[1], found[2], found[3]
	if found[4] != "" { // same type, other value
		value, kind = found[4], "longstr"
		switch args[name].(type) {
		case int32, int64:
			kind = "signedint"
		case bool:
			kind = "bool"
		}
	}
	switch kind {
	case "": // none
		if _, ok := args[name]; !ok {
			return false
		}
		delete(args, name)
	case "longstr":
		args[name] = value
	case "bool":
		args[name] = value == "true"
	default:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		args[name] = n
	}
	return true
}

// invalidName matches the argument that a broker does not know, or does not accept.
var invalidName = regexp.MustCompile(`invalid arg '([^']+)'`)

// withOtherArguments returns a queue with other arguments that are good enough, if the broker refused its declaration only
// for one of them: the existing retention of the DLQ, which a configuration without DLQ.Retention accepts, and what
// [layout.Queue.IsWished] can do without. All others must match.
func withOtherArguments(q layout.Queue, refused *amqp091.Error) (layout.Queue, bool) {
	if refused == nil || refused.Code != amqp091.PreconditionFailed {
		return q, false
	}
	args := maps.Clone(q.Args)
	_, asked := args[amqp091.QueueMessageTTLArg]
	switch invalid := invalidName.FindStringSubmatch(refused.Reason); {
	case invalid != nil:
		if _, ours := args[invalid[1]]; !ours || !q.IsWished(invalid[1]) {
			return q, false
		}
		delete(args, invalid[1])
	case q.Kind == layout.DeadQueue && !asked && isInequivalent(refused, amqp091.QueueMessageTTLArg),
		q.IsWished(amqp091.QueueOverflowArg) && isInequivalent(refused, amqp091.QueueOverflowArg):
		if !applyDifference(args, refused.Reason) {
			return q, false
		}
	default:
		return q, false
	}
	q.Args = args
	return q, true
}

// addNotSingleActive adds the problem of a queue that several consumers read at once.
func addNotSingleActive(ps *check.Problems, queue string, p redeliver.Policy) {
	ps.Add("queue "+queue, "without a single active consumer", fmt.Sprintf(
		"must have the argument %s=true where the Order is %s: otherwise several consumers get its messages at once. An argument cannot be changed: "+
			"let the queue run empty, which OrderFirstAttempts reads without the argument, delete it, and declare it again with the argument, which redeliver does unless Topology.Existing is set",
		amqp091.SingleActiveConsumerArg, p.Order))
}
