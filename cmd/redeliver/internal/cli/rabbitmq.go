package cli

import (
	"context"
	"strings"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

func openRabbitMQ(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	c, err := amqp.Open(ctx, amqp.Config{URLs: u.AMQP(), Policy: s.policy, Sink: silence})
	if err != nil {
		return nil, err
	}
	return &broker{
		kind: u.Broker,
		// AMQP has no way to ask for the queues there are.
		whose: func(_ context.Context, dlq string) (topic, group string, err error) {
			queue, ok := strings.CutSuffix(dlq, ".dlq")
			if !ok || queue == "" {
				return "", "", usagef("the name %s does not say whose DLQ it is: give --topic", dlq)
			}
			return queue, "", nil
		},
		dlq: func(ctx context.Context, s subject) (deadletter.Queue, error) {
			return c.DeadLetters(ctx, amqp.DeadLetterConfig{Topic: s.topic, DLQ: s.dlq})
		},
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if err != nil {
				return nil, err
			}
			return planOnRabbitMQ(p), nil
		},
		close: c.Close,
	}, nil
}

func planOnRabbitMQ(p *amqp.Plan) *planned {
	row := planRow{
		Broker: string(brokerurl.RabbitMQ), Origin: p.Queue, LongestWait: p.LongestWait.String(), Notes: p.Notes, NotChecked: p.NotChecked,
	}
	for _, q := range p.Queues {
		row.Places = append(row.Places, placeRow{
			Name: q.Name, Kind: q.Kind, Level: level(q.Level), Settings: settings(q.Arguments), Exists: q.Exists, Old: q.Old, Messages: known(q.Messages),
		})
	}
	for _, d := range p.Delays {
		row.add(d.Retry, d.Delay, d.Jitter, d.Hops, d.Mechanism)
	}
	return &planned{row, p.String()}
}
