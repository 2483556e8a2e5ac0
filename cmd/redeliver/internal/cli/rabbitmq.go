package cli

import (
	"context"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/mq"
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
			return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: s.topic, DLQ: s.dlq})
		},
		doctor: c.Operations().Doctor,
		pauser: c.Operations(),
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if s.forAdministrator {
				p, err = planForAdministrator(p, err)
			}
			if err != nil {
				return nil, err
			}
			return newPlanned(u.Broker, p, rabbitMQFormatters(p, u.VHost)), nil
		},
		waiting: func(_ context.Context, of subject) (*waiting, error) {
			w := &waiting{
				levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) {
					return c.Operations().WaitingLevels(ctx, of.topic)
				},
				pauser: queuePauser{c.Operations(), of.topic},
			}
			w.release = func(ctx context.Context, levels []time.Duration) (int64, error) {
				return c.Operations().Release(ctx, mq.ReleaseConfig{Topic: of.topic, Levels: levels})
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
		b.queues = c.Operations().DeadLetterQueues
	}
	return b, nil
}
