package produce

import "github.com/IBM/sarama"

// Partitioner returns the constructor of partitioners that use the partition that a write names, and the fallback for
// writes that name none.
func Partitioner(fallback sarama.PartitionerConstructor) sarama.PartitionerConstructor {
	return func(topic string) sarama.Partitioner { return ownPartitioner{fallback(topic)} }
}

type ownPartitioner struct{ sarama.Partitioner }

// Partition implements [sarama.Partitioner].
func (p ownPartitioner) Partition(msg *sarama.ProducerMessage, partitions int32) (int32, error) {
	if w, ok := msg.Metadata.(*Write); ok && w.partition >= 0 {
		return w.partition % partitions, nil
	}
	return p.Partitioner.Partition(msg, partitions)
}

// MessageRequiresConsistency makes sarama count all partitions for our records, including those without a leader.
// Otherwise the partition of a record would depend on which leaders are up.
func (p ownPartitioner) MessageRequiresConsistency(msg *sarama.ProducerMessage) bool {
	if w, ok := msg.Metadata.(*Write); ok && w.partition >= 0 {
		return true
	}
	if d, ok := p.Partitioner.(sarama.DynamicConsistencyPartitioner); ok {
		return d.MessageRequiresConsistency(msg)
	}
	return p.RequiresConsistency()
}
