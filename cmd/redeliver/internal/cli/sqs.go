package cli

import (
	"context"
	"strings"

	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/mq"
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
		queues: c.Operations().DeadLetterQueues,
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
			return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: s.topic, DLQ: s.dlq, Lease: s.lease})
		},
		doctor: c.Operations().Doctor,
		pauser: c.Operations(),
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if err != nil {
				return nil, err
			}
			return newPlanned(u.Broker, p, sqsFormatters(p, cfg.Region)), nil
		},
		waiting: func(_ context.Context, s subject) (*waiting, error) {
			return &waiting{
				levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) {
					return c.Operations().WaitingLevels(ctx, s.topic)
				},
				pauser: queuePauser{c.Operations(), s.topic},
				notes:  []string{"SQS estimates the delayed messages. It counts messages that wait by a visibility timeout, such as all of a FIFO queue, as in flight"},
			}, nil
		},
		close: c.Close,
	}, nil
}
