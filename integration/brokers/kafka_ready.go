package brokers

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaAnswers asks for the cluster's metadata, as every client does first. It uses none of the code under test.
func kafkaAnswers(ctx context.Context, addrs []string) error {
	_, err := kafkaMetadata(ctx, addrs)
	return err
}

// kafkaIsWhole also requires a leader for every partition. A broker that comes back answers before it leads again, and
// a test that continued then would test the election instead of its subject.
func kafkaIsWhole(ctx context.Context, addrs []string) error {
	m, err := kafkaMetadata(ctx, addrs)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 {
				return fmt.Errorf("partition %d of %s has no leader yet", p.Partition, t.Topic)
			}
		}
	}
	return nil
}

func kafkaMetadata(ctx context.Context, addrs []string) (kadm.Metadata, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RequestRetries(0))
	if err != nil {
		return kadm.Metadata{}, fmt.Errorf("asking kafka at %v: %w", addrs, err)
	}
	defer client.Close()
	m, err := kadm.NewClient(client).Metadata(ctx)
	if err != nil {
		return m, fmt.Errorf("asking kafka at %v for its metadata: %w", addrs, err)
	}
	if len(m.Brokers) == 0 || m.Controller < 0 {
		return m, errors.New("kafka answers, but no broker has joined the cluster yet")
	}
	return m, nil
}
