package sidecar

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func (r *runner) kafka(ctx context.Context) error {
	own := r.Broker.Sarama()
	own.ClientID = "redeliver-run"
	// A member that drains for longer than the rebalance timeout is removed from the group.
	own.Consumer.Group.Rebalance.Timeout = max(own.Consumer.Group.Rebalance.Timeout, r.Drain+15*time.Second)
	client, err := sarama.NewClient(r.Broker.Hosts, own)
	if err != nil {
		return fmt.Errorf("connecting to Kafka at %v: %w; check the address, the user, and TLS (kafka+tls://)", r.Broker.Hosts, err)
	}
	defer func() { _ = client.Close() }()
	c := kafka.Config{
		Group: r.Group, Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight, MinInFlight: r.MinInFlight,
		DrainTimeout: r.Drain, InstanceID: r.Instance, NoProvisioning: r.NoProvisioning, Sink: r.Sink,
		SpringHeaders: r.SpringHeaders, SkipExisting: r.SkipExisting, DLQ: r.DLQ,
	}
	if r.Batch.Size == 0 {
		return kafka.Consume(ctx, client, c, r.Topics, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			state, _ := redeliver.FromContext(ctx)
			return r.handleOne(ctx, fromKafka(state, rec))
		})
	}
	return kafka.ConsumeBatch(ctx, client, c, r.Topics, r.Batch, func(ctx context.Context, b *kafka.Batch) error {
		return handleAll(ctx, r, b.Messages, func(m *kafka.BatchMessage) *Message { return fromKafka(m.State(), m.Record) })
	})
}

func fromKafka(state redeliver.State, rec *sarama.ConsumerMessage) *Message {
	m := &Message{
		State: state, Key: rec.Key, Body: rec.Value, Null: rec.Value == nil, Timestamp: rec.Timestamp, Properties: coordinates(rec.Partition, rec.Offset),
	}
	if len(rec.Headers) > 0 {
		m.Headers = make([]Header, 0, len(rec.Headers))
		for _, h := range rec.Headers {
			if h != nil {
				m.Headers = append(m.Headers, Header{string(h.Key), string(h.Value)})
			}
		}
	}
	return m
}

// coordinates are the properties of a record of Kafka.
func coordinates(partition int32, offset int64) []Header {
	return []Header{{"Partition", strconv.Itoa(int(partition))}, {"Offset", strconv.FormatInt(offset, 10)}}
}
