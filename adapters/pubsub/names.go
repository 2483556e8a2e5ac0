package pubsub

import (
	"strconv"

	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Names configures the names of a subscription's topics. A nil field means the default. The names
// must differ for every pair of topic and group, because two subscriptions must never share a
// topic.
type Names struct {
	// Retry is the topic from which a message comes back to its group. Default
	// "<topic>.<group>.retry".
	Retry func(topic, group string) string
	// Delay is the nth of the eight delay topics, counted from 1. Default: the name of Retry, a dot
	// and n, "<topic>.<group>.retry.1".
	Delay func(topic, group string, n int) string
	// DLQ is the dead-letter topic. Default "<topic>.<group>.dlq".
	DLQ func(topic, group string) string
}

func (n Names) retry(topic, group string) string {
	if n.Retry != nil {
		return n.Retry(topic, group)
	}
	return topic + "." + kafkaname.EscapeGroup(group) + wirename.RetrySuffix
}

func (n Names) dlq(topic, group string) string {
	if n.DLQ != nil {
		return n.DLQ(topic, group)
	}
	return topic + "." + kafkaname.EscapeGroup(group) + wirename.DLQSuffix
}

func (n Names) delay(topic, group string, nth int) string {
	if n.Delay != nil {
		return n.Delay(topic, group, nth)
	}
	return n.retry(topic, group) + "." + strconv.Itoa(nth)
}
