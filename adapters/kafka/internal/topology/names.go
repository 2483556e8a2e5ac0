package topology

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Names has the names of a subscription's topics, see kafka.Names. A nil field means the default.
type Names struct {
	Retry, DLQ, Control func(topic, group string) string
}

// RetryTopic returns the name of the topic from which messages come back.
func (n Names) RetryTopic(topic, group string) string {
	if n.Retry != nil {
		return n.Retry(topic, group)
	}
	return kafkaname.Base(topic, group) + wirename.RetrySuffix
}

// DLQTopic returns the name of the dead-letter topic.
func (n Names) DLQTopic(topic, group string) string {
	if n.DLQ != nil {
		return n.DLQ(topic, group)
	}
	return kafkaname.Base(topic, group) + wirename.DLQSuffix
}

// ControlTopic returns the name of the topic with the commands to the group.
func (n Names) ControlTopic(topic, group string) string {
	if n.Control != nil {
		return n.Control(topic, group)
	}
	return kafkaname.Base(topic, group) + wirename.ControlSuffix
}

// DelayTopic returns the name of a level's topic.
func (n Names) DelayTopic(topic, group string, level time.Duration) string {
	return kafkaname.Delay(n.RetryTopic(topic, group), level)
}

// Level returns the level in the name of the subscription's delay topic.
func (n Names) Level(topic, group, name string) (time.Duration, bool) {
	level, ok := kafkaname.Level(n.RetryTopic(topic, group), name)
	return level, ok && level > 0 // not for the retry topic
}

// Check refuses names that Kafka would refuse, and names that would mix up topics: a retry topic that is also the DLQ
// would retry dead letters forever.
func (n Names) Check(ps *check.Problems, topic, group string) {
	retry, dead := n.RetryTopic(topic, group), n.DLQTopic(topic, group)
	if n.Retry != nil {
		field := fmt.Sprintf("Names.Retry(%q, %q)", topic, group)
		kafkaname.CheckTopic(ps, field, retry)
		if len(retry) <= kafkaname.MaxTopic {
			rules.CheckRoom(ps, field, retry, kafkaname.MaxTopic-kafkaname.MaxSuffix+len(wirename.RetrySuffix))
		}
		rules.CheckOwnName(ps, "topic", field, retry, topic)
	}
	if n.DLQ != nil {
		field := fmt.Sprintf("Names.DLQ(%q, %q)", topic, group)
		kafkaname.CheckTopic(ps, field, dead)
		rules.CheckOwnName(ps, "topic", field, dead, topic, retry)
	}
	if n.Control != nil {
		field, name := fmt.Sprintf("Names.Control(%q, %q)", topic, group), n.ControlTopic(topic, group)
		kafkaname.CheckTopic(ps, field, name)
		rules.CheckOwnName(ps, "topic", field, name, topic, retry, dead)
	}
}

// Places returns the names of the subscription's topics.
func (l *Layout) Places() engine.Places {
	p := engine.Places{Origin: l.Origin, Own: []string{l.Control.Name}}
	for _, t := range l.Topics {
		if t.Kind == DLQ {
			p.DLQ = t.Name
			p.Own = append(p.Own, l.State.Name)
		} else {
			p.Own = append(p.Own, t.Name)
		}
	}
	return p
}
