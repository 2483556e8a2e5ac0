package cli

import (
	"context"
	"strings"

	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

func openSQS(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	cfg, err := u.AWS(ctx)
	if err != nil {
		return nil, err
	}
	c, err := sqs.Open(ctx, sqs.Config{AWS: cfg, Endpoint: u.Endpoint(), Policy: s.policy, StateKeys: u.StateKeys, Sink: discardEvents})
	if err != nil {
		return nil, err
	}
	return &broker{
		kind:   u.Broker,
		queues: c.DeadLetterQueues,
		ownerOf: func(_ context.Context, dlq string) (topic, group string, err error) {
			name, fifo := strings.CutSuffix(dlq, ".fifo")
			queue, ok := strings.CutSuffix(name, "-dlq")
			if !ok || queue == "" {
				return "", "", usagef("the name %s contains no queue: give --topic", dlq)
			}
			if fifo {
				queue += ".fifo"
			}
			return queue, "", nil
		},
		dlq: func(ctx context.Context, s subject) (deadletter.Queue, error) {
			return c.DeadLetters(ctx, sqs.DeadLetterConfig{Topic: s.topic, DLQ: s.dlq, Lease: s.lease})
		},
		doctor: c.Doctor,
		pauser: c,
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if err != nil {
				return nil, err
			}
			return planOnSQS(p, cfg.Region), nil
		},
		waiting: func(_ context.Context, s subject) (*waiting, error) {
			return &waiting{
				levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) { return c.Waiting(ctx, s.topic) },
				pauser: queuePauser{c, s.topic},
				notes:  []string{"SQS estimates the delayed messages. It counts messages that wait by a visibility timeout, such as all of a FIFO queue, as in flight"},
			}, nil
		},
		close: c.Close,
	}, nil
}

func planOnSQS(p *sqs.Plan, region string) *planned {
	row := planRow{
		Broker: string(brokerurl.SQS), Origin: p.Queue, LongestWait: p.LongestWait.String(), Notes: p.Notes, NotChecked: p.NotChecked,
	}
	for _, q := range p.Queues {
		row.Places = append(row.Places, placeRow{
			Name: q.Name, Kind: q.Kind, Settings: settings(q.Attributes), Exists: q.Exists, Messages: countOrNil(q.Messages),
		})
	}
	for _, d := range p.Delays {
		row.add(d.Retry, d.Delay, d.Jitter, d.Hops, d.Mechanism)
	}
	return &planned{row, p.String(), sqsFormatters(p, region)}
}
