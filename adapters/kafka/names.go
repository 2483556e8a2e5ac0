package kafka

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Names configures the names of a subscription's topics. A nil field means the default. The names
// must differ for every pair of topic and group, because two subscriptions must never share a
// topic.
type Names struct {
	// Retry is the topic from which a message comes back to its group. Default
	// "<topic>.<group>.retry". The name of a delay topic is this name, a dot and its level:
	// "<topic>.<group>.retry.10s".
	Retry func(topic, group string) string
	// DLQ is the dead-letter topic. Default "<topic>.<group>.dlq".
	DLQ func(topic, group string) string
	// Control is the topic with the commands to the group's consumers, see [Client.Waiting].
	// Default "<topic>.<group>.control".
	Control func(topic, group string) string
}

func (n Names) retry(topic, group string) string {
	if n.Retry != nil {
		return n.Retry(topic, group)
	}
	return kafkaname.Base(topic, group) + wirename.RetrySuffix
}

func (n Names) dlq(topic, group string) string {
	if n.DLQ != nil {
		return n.DLQ(topic, group)
	}
	return kafkaname.Base(topic, group) + wirename.DLQSuffix
}

func (n Names) control(topic, group string) string {
	if n.Control != nil {
		return n.Control(topic, group)
	}
	return kafkaname.Base(topic, group) + ".control"
}

func (n Names) delay(topic, group string, level time.Duration) string {
	return kafkaname.Delay(n.retry(topic, group), level)
}

// level returns the level in the name of the subscription's delay topic.
func (n Names) level(topic, group, name string) (time.Duration, bool) {
	level, ok := kafkaname.Level(n.retry(topic, group), name)
	return level, ok && level > 0 // not for the retry topic
}

// check refuses names that Kafka would refuse, and names that would mix up topics: a retry topic that is also the DLQ
// would retry dead letters forever.
func (n Names) check(ps *redeliver.Problems, topic, group string) {
	retry, dead := n.retry(topic, group), n.dlq(topic, group)
	if n.Retry != nil {
		field := fmt.Sprintf("Names.Retry(%q, %q)", topic, group)
		kafkaname.CheckTopic(ps, field, retry)
		if maxLen := kafkaname.MaxTopic - kafkaname.MaxSuffix + len(wirename.RetrySuffix); len(retry) > maxLen && len(retry) <= kafkaname.MaxTopic {
			ps.Add(field, len(retry), fmt.Sprintf("must be at most %d bytes long: redeliver appends the level to it", maxLen))
		}
		if retry == topic {
			ps.Add(field, retry, "must not be the topic itself")
		}
	}
	if n.DLQ != nil {
		field := fmt.Sprintf("Names.DLQ(%q, %q)", topic, group)
		kafkaname.CheckTopic(ps, field, dead)
		if dead == topic || dead == retry || strings.HasPrefix(dead, retry+".") {
			ps.Add(field, dead, "must be neither the topic itself, nor the name of another topic of redeliver's")
		}
	}
	if n.Control != nil {
		field, name := fmt.Sprintf("Names.Control(%q, %q)", topic, group), n.control(topic, group)
		kafkaname.CheckTopic(ps, field, name)
		if name == topic || name == retry || name == dead || strings.HasPrefix(name, retry+".") {
			ps.Add(field, name, "must be neither the topic itself, nor the name of another topic of redeliver's")
		}
	}
}

// checkShared refuses names that another subscription of the client uses.
func (l *layout) checkShared(ps *redeliver.Problems, other *layout) {
	theirs := append(slices.Clip(other.topics), other.control)
	for _, t := range append(slices.Clip(l.topics), l.control) {
		if other.origin != l.origin && t.name != "" && slices.ContainsFunc(theirs, func(o ownTopic) bool { return o.name == t.name }) {
			ps.Add("Names", t.name, fmt.Sprintf("must differ for every topic: %s and %s would share it", other.origin, l.origin))
		}
	}
}
