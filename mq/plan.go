package mq

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/limits"
)

// Plan describes how a subscription waits: the topics or queues that it uses, those that are created at start, how each delay of its
// policy is spent, the rights that it needs, and what the broker itself does to the messages.
type Plan struct {
	// Server names the broker, such as "Kafka", "RabbitMQ 3.10.8" or "Amazon SQS FIFO".
	Server string
	// Origin is the topic or queue. Group is the group that reads it; it is empty on RabbitMQ and SQS.
	Origin, Group string
	// Places are the subscription's queue (RabbitMQ and SQS) and redeliver's topics or queues.
	Places []Place
	// OperatorPlaces are places that messages do not need. The DLQ's state is created when somebody first works on the DLQ. Kafka's
	// control topic has the commands about waiting messages, and is created with the first command.
	OperatorPlaces []Place
	// Delays are the waits of the planned retries, in order.
	Delays []delayqueue.PlannedDelay
	// LongestWait is the longest wait that a handler may ask for. With OrderBlocking, longer ones are cut to it.
	LongestWait time.Duration
	// Settings are settings of the broker by name that redeliver relies on, apart from those of Places: of a share group, and on SQS
	// QueueUrl (once the queue exists) and MaximumMessageSize, in bytes.
	Settings map[string]string
	// Rights are those that a subscriber needs if all places exist (Config.NoProvisioning).
	Rights []Right
	// CreationRights are those that it needs in addition to create what is missing, at the start or after a deletion. Only RabbitMQ
	// lists them.
	CreationRights []Right
	// OperatorRights are those that a person needs to look into the DLQ, to replay its messages, to pause the subscription and to call
	// Doctor, if OperatorPlaces exist, too.
	OperatorRights []Right
	// Notes are further findings, such as limits, old levels or stuck messages.
	Notes []string
	// NotChecked lists what was not checked, and why.
	NotChecked []string
	// Problems are those of the error that RabbitMQ's Plan returns together with the plan: the queues to create if
	// Config.NoProvisioning is set.
	Problems []redeliver.Problem
}

// Place is the subscription's queue, or one of redeliver's topics and queues.
type Place struct {
	Name string
	// Kind is "queue", "delay", "retry", "suspects", "paused", "place" or "dlq"; in OperatorPlaces "state" or "control".
	Kind string
	// Level is the wait of a delay topic or queue.
	Level time.Duration
	// Partitions and Replicas are 0 where the broker has none.
	Partitions int32
	Replicas   int16
	// Settings are those that it has or is created with: a topic's settings, a queue's arguments or attributes. Nil means unknown.
	Settings map[string]any
	// ARN is that of an SQS queue. It is empty if it is unknown.
	ARN string
	// Exists is false if the place is created at start or, if OnDemand is set, when a message needs it.
	Exists bool
	// OnDemand reports whether it is a level for waits that only a handler or a publisher asks for.
	OnDemand bool
	// Old reports whether it is a level of an older policy, which is read until it is empty.
	Old bool
	// Messages is the number of messages in a queue, stuck and delayed ones included. On SQS it is an estimate; -1 means unknown, as
	// for topics.
	Messages int64
}

// Right is a right that the broker must grant.
type Right struct {
	// Resource is "topic" or "group" on Kafka, "queue" on SQS, and "queue or exchange" on RabbitMQ.
	Resource string
	Name     string
	// ARN is that of an SQS queue. It is empty if it is unknown.
	ARN string
	// Operations are named as the broker names them: "Read" and "Write" as kafka-acls.sh does, "configure", "write" and "read" as
	// rabbitmqctl set_permissions does, and actions such as "sqs:ReceiveMessage".
	Operations []string
}

// SettingsOf returns texts as the Settings of a Place.
func SettingsOf(texts map[string]string) map[string]any {
	if texts == nil {
		return nil
	}
	settings := make(map[string]any, len(texts))
	for name, text := range texts {
		settings[name] = text
	}
	return settings
}

// Setting returns a setting of a place as a text, or "".
func (p *Place) Setting(name string) string {
	if v, ok := p.Settings[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// Allowing returns the names of resources on which the rights allow an operation.
func Allowing(rights []Right, operation string) (names []string) {
	for _, r := range rights {
		if slices.Contains(r.Operations, operation) {
			names = append(names, r.Name)
		}
	}
	return names
}

// String returns the plan as a text for people.
func (p *Plan) String() string {
	var b strings.Builder
	if p.Group == "" {
		fmt.Fprintf(&b, "queue %s, %s\n\n", p.Origin, p.Server)
	} else {
		fmt.Fprintf(&b, "%s, %s, group %s\n\n", p.Origin, p.Server, p.Group)
	}
	partitioned := slices.ContainsFunc(p.Places, func(t Place) bool { return t.Partitions > 0 })
	header := "queue\tkind\tmessages\t"
	if partitioned {
		header = "topic\tkind\tpartitions\treplicas\t"
	}
	delayqueue.WriteTable(&b, header, func(w io.Writer) {
		for _, t := range p.Places {
			size := "not known"
			switch {
			case partitioned:
				size = fmt.Sprintf("%d\t%d", t.Partitions, t.Replicas)
			case t.Messages >= 0:
				size = strconv.FormatInt(t.Messages, 10)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name, t.Kind, size, t.status())
		}
	})
	if len(p.Settings) > 0 {
		delayqueue.WriteTable(&b, "setting\t", func(w io.Writer) {
			for _, name := range slices.Sorted(maps.Keys(p.Settings)) {
				fmt.Fprintf(w, "%s\t%s\n", name, p.Settings[name])
			}
		})
	}
	delayqueue.WriteDelays(&b, "waits on", p.Delays)
	fmt.Fprintf(&b, "longest wait that a handler may ask for: %s; never early, a few milliseconds late\n", limits.DurationText(p.LongestWait))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, r := range p.Problems {
		fmt.Fprintf(&b, "refused: %s\n", r)
	}
	for _, n := range p.NotChecked {
		fmt.Fprintf(&b, "not checked: %s\n", n)
	}
	return b.String()
}

func (p *Place) status() string {
	switch {
	case p.Old:
		return "is left over"
	case p.Exists:
		return "exists"
	case p.OnDemand:
		return "is created when a wait needs it"
	default:
		return "is created"
	}
}
