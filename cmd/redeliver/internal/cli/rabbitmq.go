package cli

import (
	"context"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/wirename"
)

func openRabbitMQ(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	c, err := amqp.Open(ctx, amqp.Config{URLs: u.AMQP(), Policy: s.policy, Sink: discardEvents, NoProvisioning: s.forAdministrator, ManagementURL: s.api, StateKeys: u.StateKeys})
	if err != nil {
		return nil, err
	}
	b := &broker{
		kind: u.Broker,
		ownerOf: func(_ context.Context, dlq string) (topic, group string, err error) {
			queue, ok := strings.CutSuffix(dlq, wirename.DLQSuffix)
			if !ok || queue == "" {
				return "", "", usagef("the name %s contains no queue: give --topic", dlq)
			}
			return queue, "", nil
		},
		dlq: func(ctx context.Context, s subject) (deadletter.Queue, error) {
			return c.DeadLetters(ctx, amqp.DeadLetterConfig{Topic: s.topic, DLQ: s.dlq})
		},
		doctor: c.Doctor,
		pauser: c,
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if s.forAdministrator {
				p, err = planForAdministrator(p, err)
			}
			if err != nil {
				return nil, err
			}
			return planOnRabbitMQ(p, u.VHost), nil
		},
		waiting: func(_ context.Context, of subject) (*waiting, error) {
			w := &waiting{
				levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) { return c.Waiting(ctx, of.topic) },
				pauser: queuePauser{c, of.topic},
			}
			w.release = func(ctx context.Context, levels []time.Duration) (int64, error) {
				return c.Release(ctx, amqp.ReleaseConfig{Topic: of.topic, Levels: levels})
			}
			if s.api == "" {
				w.notes = append(w.notes, "these are the levels of the policy that the flags describe, because AMQP cannot list queues; RabbitMQ does not report when the first message is due")
			} else {
				w.notes = append(w.notes, "RabbitMQ does not report when the first message is due")
			}
			return w, nil
		},
		close: c.Close,
	}
	if s.api != "" { // AMQP cannot list queues
		b.queues = c.DeadLetterQueues
	}
	return b, nil
}

func planOnRabbitMQ(p *amqp.Plan, vhost string) *planned {
	row := planRow{
		Broker: string(brokerurl.RabbitMQ), Origin: p.Queue, LongestWait: p.LongestWait.String(), Notes: p.Notes, NotChecked: p.NotChecked,
	}
	for _, q := range p.Queues {
		row.Places = append(row.Places, placeRow{
			Name: q.Name, Kind: q.Kind, Level: levelText(q.Level), Settings: settings(q.Arguments), Exists: q.Exists, Old: q.Old, Messages: countOrNil(q.Messages),
		})
	}
	for _, d := range p.Delays {
		row.add(d.Retry, d.Delay, d.Jitter, d.Hops, d.Mechanism)
	}
	return &planned{row, p.String(), rabbitMQFormatters(p, vhost)}
}
