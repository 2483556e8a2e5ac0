package sidecar

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
)

func (r *runner) kafkaShare(ctx context.Context) error {
	return kafkashare.Consume(ctx, kafkashare.Config{
		Brokers: r.Broker.Hosts, Group: r.Group, Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, Sink: r.Sink, Options: r.Broker.Franz("redeliver-run"),
	}, r.Topics, func(ctx context.Context, rec *kgo.Record) error {
		state, _ := redeliver.FromContext(ctx)
		return r.handleOne(ctx, fromKafkaShare(state, rec))
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
