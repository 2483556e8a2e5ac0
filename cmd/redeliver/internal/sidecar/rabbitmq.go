package sidecar

import (
	"context"
	"maps"
	"slices"
	"strconv"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

func (r *runner) rabbitmq(ctx context.Context) error {
	c := amqp.Config{
		URLs: r.Broker.AMQP(), Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight, MinInFlight: r.MinInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, DLQ: r.DLQ, StateKeys: r.Broker.StateKeys, Sink: r.Sink,
	}
	if r.KeyHeader != "" {
		c.Key = amqp.KeyHeader(r.KeyHeader)
	}
	if r.Batch.Size == 0 {
		return amqp.Consume(ctx, c, r.Topics, func(ctx context.Context, d amqp091.Delivery) error {
			state, _ := redeliver.FromContext(ctx)
			return r.handleOne(ctx, fromRabbitMQ(state, &d))
		})
	}
	return amqp.ConsumeBatch(ctx, c, r.Topics, r.Batch, func(ctx context.Context, b *amqp.Batch) error {
		return handleAll(ctx, r, b.Messages, func(m *amqp.BatchMessage) *Message { return fromRabbitMQ(m.State(), &m.Record) })
	})
}

func fromRabbitMQ(state redeliver.State, d *amqp091.Delivery) *Message {
	m := &Message{State: state, Body: d.Body, Timestamp: d.Timestamp, ContentType: d.ContentType}
	for _, p := range []Header{
		{"Exchange", d.Exchange}, {"Routing-Key", d.RoutingKey}, {"Message-Id", d.MessageId}, {"Correlation-Id", d.CorrelationId},
		{"Reply-To", d.ReplyTo}, {"Type", d.Type}, {"App-Id", d.AppId}, {"User-Id", d.UserId}, {"Content-Encoding", d.ContentEncoding},
	} {
		if p.Value != "" {
			m.Properties = append(m.Properties, p)
		}
	}
	if d.Priority > 0 {
		m.Properties = append(m.Properties, Header{"Priority", strconv.Itoa(int(d.Priority))})
	}
	// A table is unordered.
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		m.Headers = append(m.Headers, Header{name, amqp.HeaderText(d.Headers[name])})
	}
	return m
}
