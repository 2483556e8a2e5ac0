package sqs

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/rules"
)

const (
	dlqSuffix      = "-dlq"
	suspectsSuffix = "-suspects"
	placeSuffix    = "-place"
)

// Names configures the names of redeliver's queues. A nil field means the default. The names must
// differ for every queue. Those of DLQ and Suspects end with .fifo if the queue's name does, and that
// of Place never.
type Names struct {
	// DLQ is the dead-letter queue. Default "<queue>-dlq"; for orders.fifo it is
	// orders-dlq.fifo.
	DLQ func(queue string) string
	// Suspects is the queue of messages that may have killed their process.
	// Default "<queue>-suspects"; for orders.fifo it is orders-suspects.fifo.
	Suspects func(queue string) string
	// Place is the queue of notes about the messages of a FIFO queue that keep their
	// place, a standard queue. Default: for orders.fifo it is orders-place.
	Place func(queue string) string
}

func (n Names) dlq(queue string) string {
	if n.DLQ != nil {
		return n.DLQ(queue)
	}
	return api.SiblingName(queue, dlqSuffix)
}

func (n Names) suspects(queue string) string {
	if n.Suspects != nil {
		return n.Suspects(queue)
	}
	return api.SiblingName(queue, suspectsSuffix)
}

func (n Names) place(queue string) string {
	if n.Place != nil {
		return n.Place(queue)
	}
	return strings.TrimSuffix(api.SiblingName(queue, placeSuffix), api.FIFOSuffix)
}

// check refuses names that collide, or that SQS would refuse.
func (n Names) check(ps *check.Problems, queue string) {
	dlq, suspects := n.dlq(queue), n.suspects(queue)
	if n.DLQ != nil {
		checkBeside(ps, fmt.Sprintf("Names.DLQ(%q)", queue), queue, dlq)
	}
	if n.Suspects != nil {
		checkBeside(ps, fmt.Sprintf("Names.Suspects(%q)", queue), queue, suspects)
	}
	rules.CheckOwnName(ps, "queue", fmt.Sprintf("Names.Suspects(%q)", queue), suspects, "", dlq)
	if n.Place != nil && api.IsFIFO(queue) {
		place, field := n.Place(queue), fmt.Sprintf("Names.Place(%q)", queue)
		checkName(ps, field, place)
		if api.IsFIFO(place) {
			ps.Add(field, place, "must not end with .fifo: a note is delayed by no other one")
		}
	}
}

func checkBeside(ps *check.Problems, field, queue, name string) {
	checkName(ps, field, name)
	rules.CheckOwnName(ps, "queue", field, name, queue)
	if api.IsFIFO(name) != api.IsFIFO(queue) {
		ps.Add(field, name, "must end with .fifo where the queue does, and only there")
	}
}

// checkName refuses names that SQS would refuse.
func checkName(ps *check.Problems, field, queue string) {
	stem := strings.TrimSuffix(queue, api.FIFOSuffix)
	bad := stem == "" || len(queue) > api.MaxName
	for _, r := range stem {
		bad = bad || !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	}
	if bad {
		ps.Add(field, fmt.Sprintf("%q", limits.Cut(redeliver.Redact(queue), 2*api.MaxName)),
			fmt.Sprintf("must be the name of a queue: up to %d letters, digits, hyphens and underscores, with .fifo at the end of a FIFO queue's", api.MaxName))
	}
}

// address is a queue as a topic identifies it: by name, URL or ARN.
type address struct {
	name    string
	url     string // if the topic is a URL
	account string // of an ARN, or of a URL that has one
	region  string // of an ARN
}

// checkTopic reads a topic, and refuses names that SQS would refuse.
func checkTopic(ps *check.Problems, topic string) address {
	a := parseTopic(topic)
	checkName(ps, "queue of topic "+strconv.Quote(limits.Cut(redeliver.Redact(topic), 200)), a.name)
	return a
}

// parseTopic reads a topic. It does not check the name.
func parseTopic(topic string) address {
	if parts := strings.SplitN(topic, ":", 6); len(parts) == 6 && parts[0] == "arn" && parts[2] == "sqs" {
		return address{name: parts[5], region: parts[3], account: parts[4]}
	}
	if u, err := url.Parse(topic); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		steps := strings.Split(strings.Trim(u.Path, "/"), "/")
		a := address{name: steps[len(steps)-1], url: topic}
		if len(steps) > 1 {
			a.account = steps[len(steps)-2]
		}
		return a
	}
	return address{name: topic}
}
