package sidecar

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
)

func (r *runner) kafkaShare(ctx context.Context) error {
	c := kafkashare.Config{
		Brokers: r.Broker.Hosts, Group: r.Group, Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight, MinInFlight: r.MinInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, Sink: r.Sink, Options: r.Broker.Franz("redeliver-run"),
	}
	if r.Batch.Size == 0 {
		return kafkashare.Consume(ctx, c, r.Topics, func(ctx context.Context, rec *kgo.Record) error {
			state, _ := redeliver.FromContext(ctx)
			return r.handleOne(ctx, fromKafkaShare(state, rec))
		})
	}
	return kafkashare.ConsumeBatch(ctx, c, r.Topics, r.Batch, func(ctx context.Context, b *kafkashare.Batch) error {
		return handleAll(ctx, r, b.Messages, func(m *kafkashare.BatchMessage) *Message { return fromKafkaShare(m.State(), m.Record) })
	})
}

func fromKafkaShare(state redeliver.State, rec *kgo.Record) *Message {
	m := &Message{
		State: state, Key: rec.Key, Body: rec.Value, Null: rec.Value == nil, Timestamp: rec.Timestamp, Properties: coordinates(rec.Partition, rec.Offset),
	}
	for _, h := range rec.Headers {
		m.Headers = append(m.Headers, Header{h.Key, string(h.Value)})
	}
	return m
}
