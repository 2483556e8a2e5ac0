package amqp

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// A queue with a single active consumer delivers to one of those that read it, and
// to the next when that one's channel has ended. What the channel had is then
// delivered again first, in order. AMQP does not tell whether a queue has one, but
// RabbitMQ compares a declaration of a queue that is there with the queue, argument
// by argument, and says which is the first that differs and what it is.

// single are the arguments of a queue with a single active consumer.
func single(args amqp.Table) amqp.Table {
	args = maps.Clone(args)
	if args == nil {
		args = amqp.Table{}
	}
	args[amqp.SingleActiveConsumerArg] = true
	return args
}

// compared is about how many arguments RabbitMQ compares.
const compared = 30

// single looks whether the queue that is read, which is there, has a single active
// consumer: nothing is declared, because the queue exists.
func (d *declarer) single(l *layout, t Topology, ps *redeliver.Problems) (unchecked []string) {
	args, durable := l.origin(t).args, true // as ours would be
	ours := true
	why := "too many arguments differ"
	for range compared {
		refused := d.do(func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(l.queue, true, false, false, false, nil); err != nil {
				return err // it was deleted, and is not to be declared like this
			}
			_, err := ch.QueueDeclare(l.queue, durable, false, false, false, args)
			return err
		})
		switch {
		case d.err != nil || refused == nil:
			return nil
		case inequivalent(refused, "durable") && durable:
			durable = false
			continue
		case ours && !inequivalent(refused, amqp.SingleActiveConsumerArg): // with little, so that there is room for the answer
			args, ours = single(nil), false
			continue
		case inequivalent(refused, amqp.SingleActiveConsumerArg):
			addCompeting(ps, l.queue, l.policy)
			return nil
		}
		if why = refused.Reason; !learn(args, why) {
			break
		}
	}
	return []string{fmt.Sprintf("whether %s has a single active consumer (the broker says: %s)", l.queue, why)}
}

// difference is what RabbitMQ says of an argument that differs: its name, and what
// it is, where it is something.
var difference = regexp.MustCompile(`inequivalent arg '([^']+)' .* but current is (?:none|the value '(.*)' of type '([a-z]+)'|'(.*)')$`)

// learn takes over the argument that a refusal is about. It is false when that
// cannot be read.
func learn(args amqp.Table, reason string) bool {
	found := difference.FindStringSubmatch(reason)
	if found == nil {
		return false
	}
	name, value := found[1], found[2]
	switch found[3] {
	case "": // none, or another text
		if found[4] != "" {
			args[name] = found[4]
			return true
		}
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

// addCompeting is the problem of a queue that several consumers read at once.
func addCompeting(ps *redeliver.Problems, queue string, p redeliver.Policy) {
	ps.Add("queue "+queue, "without a single active consumer", fmt.Sprintf(
		"must have the argument %s=true where the Order is %s: else several consumers have its messages at once. An argument cannot be changed: "+
			"let the queue run empty, delete it, and declare it anew with the argument, which redeliver does where the topology is not of existing queues",
		amqp.SingleActiveConsumerArg, p.Order))
}
