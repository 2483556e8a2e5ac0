package kafka

import "github.com/redeliver/redeliver/adapters/kafka/internal/topology"

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
	// Control is the topic with the commands to the group's consumers, see [mq.Operations.Waiting].
	// Default "<topic>.<group>.control".
	Control func(topic, group string) string
}

func (c Config) names() topology.Names { return topology.Names(c.Names) }

// topology returns the configuration of our topics.
func (c Config) topology() topology.Config {
	return topology.Config{
		Names: c.names(), RetryPartitions: c.RetryPartitions, MaxPartitions: c.MaxPartitions, NoProvisioning: c.NoProvisioning,
		DLQ: c.DLQ, MaxMessageBytes: c.Sarama.Producer.MaxMessageBytes,
	}
}
