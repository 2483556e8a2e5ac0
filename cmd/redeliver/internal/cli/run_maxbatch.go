package cli

import (
	"math"
	"strconv"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

const maxMessageBytes = "max.message.bytes"

// maxBatchFor returns the bound of decompressed batches for topics: the default, or the largest max.message.bytes of
// the topics if that is more. A message that such a topic accepts would otherwise stop the subscription. The default
// also serves when Kafka does not answer: then the subscription reports the error.
func maxBatchFor(u brokerurl.URL, topics []string) int32 {
	bound := u.MaxBatch
	client, err := sarama.NewClusterAdmin(u.Hosts, u.Sarama())
	if err != nil {
		return bound
	}
	defer func() { _ = client.Close() }()
	resources := make([]*sarama.ConfigResource, len(topics))
	for i, topic := range topics {
		resources[i] = &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{maxMessageBytes}}
	}
	results, err := client.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	if err != nil {
		return bound
	}
	for _, r := range results { // one with an error has no settings
		for _, s := range r.Configs {
			if n, err := strconv.ParseInt(s.Value, 10, 64); err == nil && s.Name == maxMessageBytes {
				bound = max(bound, int32(min(n, math.MaxInt32)))
			}
		}
	}
	return bound
}
