package produce

import "github.com/IBM/sarama"

// Partitions makes partitioners that use the partition that a write names, and the caller's partitioner for writes
// that name none.
func Partitions(callers sarama.PartitionerConstructor) sarama.PartitionerConstructor {
	return func(topic string) sarama.Partitioner { return ownPartitioner{callers(topic)} }
}

type ownPartitioner struct{ sarama.Partitioner }

// Partition implements [sarama.Partitioner].
func (p ownPartitioner) Partition(msg *sarama.ProducerMessage, partitions int32) (int32, error) {
	if c, ok := msg.Metadata.(*Write); ok && c.partition >= 0 {
		return c.partition % partitions, nil
	}
	return p.Partitioner.Partition(msg, partitions)
}

// MessageRequiresConsistency makes sarama count all partitions for our records, including those without a leader.
// Otherwise the partition of a record would depend on which leaders are up.
func (p ownPartitioner) MessageRequiresConsistency(msg *sarama.ProducerMessage) bool {
	if c, ok := msg.Metadata.(*Write); ok && c.partition >= 0 {
		return true
	}
	if d, ok := p.Partitioner.(sarama.DynamicConsistencyPartitioner); ok {
		return d.MessageRequiresConsistency(msg)
	}
	return p.RequiresConsistency()
}
