package cli

import (
	"strings"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// ability says which brokers support a verb: "yes", "yes: with what", or "no: why, and what to do instead".
// docs/reference/command.md has the table without reasons; a test checks that.
type ability struct {
	verb                             string
	kafka, kafkaShare, rabbitMQ, sqs string
}

const (
	sqsHides        = "no: SQS shows a delayed message to nobody before it is due. "
	shareNoCommands = "no: the consumers of a share group read no commands about waiting messages. "
	useInvalid      = "Set `Policy.Invalid` in the consumers, which ask it before each attempt"
	withManagement  = "yes: with `--management-url`"
)

// abilityTable lists the verbs that differ between brokers. Any other verb is the same on each.
var abilityTable = []ability{
	{"doctor", "yes", "yes", "yes: mostly with `--management-url`", "yes: partly"},
	{"console", "yes", "yes", withManagement, "yes"},
	{"exporter", "yes", "yes", "yes: lists DLQs with `--management-url`", "yes"},
	{"top", "yes", "yes", withManagement, "yes: with an estimate of waiting messages"},
	{"dlq list", "yes", "yes", withManagement, "yes: with the right `sqs:ListQueues`"},
	{"dlq check", "yes", "yes", "yes: of all DLQs with `--management-url`", "yes: of all DLQs with the right `sqs:ListQueues`"},
	{"waiting list", "yes", "yes", "yes: levels of the policy flags; all with `--management-url`", "yes: an estimate"},
	{
		"waiting list --messages", "yes", "no: of the messages that wait for a share group, only the number is known. Use `waiting list` without a filter",
		"no: RabbitMQ shows only the head of a queue. Use `waiting list` without a filter, which counts the messages of each level",
		sqsHides + "Use `waiting list` without a filter, which counts the messages",
	},
	{
		"waiting release", "yes: the consumers carry it out", shareNoCommands + "Publish the message again, or wait",
		"yes: the command moves the levels; `--all` needs `--management-url`", sqsHides + "Publish the message again, or wait",
	},
	{
		"waiting cancel", "yes", shareNoCommands + useInvalid,
		"no: RabbitMQ shows only the head of a queue, so a search would take messages out of their wait. " + useInvalid, sqsHides + useInvalid,
	},
}

func (a *ability) on(kind brokerurl.Broker) string {
	switch kind {
	case brokerurl.KafkaShare:
		return a.kafkaShare
	case brokerurl.RabbitMQ:
		return a.rabbitMQ
	case brokerurl.SQS:
		return a.sqs
	default:
		return a.kafka
	}
}

// supported returns the error of a verb that the broker does not support, with the alternative, or nil.
func supported(kind brokerurl.Broker, verb string) error {
	for i := range abilityTable {
		if why, no := strings.CutPrefix(abilityTable[i].on(kind), "no: "); no && abilityTable[i].verb == verb {
			return failed(codeFailed, "%s is not supported on %s: %s", verb, displayName(kind), strings.ReplaceAll(why, "`", `"`))
		}
	}
	return nil
}

// supported calls the function supported for the broker that the flags name.
func (a *app) supported(verb string) error {
	u, err := a.conn.url(a.Env)
	if err != nil {
		return err
	}
	return supported(u.Broker, verb)
}
