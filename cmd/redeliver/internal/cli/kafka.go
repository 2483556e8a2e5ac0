package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/mq"
)

// unusedGroup is the group name of a client that joins no group.
const unusedGroup = "redeliver-command"

// kafkaClient returns the configuration of the command's clients.
func kafkaClient(u brokerurl.URL) *sarama.Config {
	client := u.Sarama()
	client.ClientID = "redeliver-command"
	return client
}

func newKafkaClient(ctx context.Context, u brokerurl.URL, s setup) (*mq.Client, error) {
	return kafka.Open(ctx, kafka.Config{
		Brokers: u.Hosts, Group: cmp.Or(s.group, unusedGroup), Policy: s.policy, Sink: discardEvents, Sarama: kafkaClient(u),
	})
}

func openKafka(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	c, err := newKafkaClient(ctx, u, s)
	if err != nil {
		return nil, err
	}
	return kafkaBroker(c, u, s.policy.Order), nil
}

// kafkaBroker returns the functions of a client. It closes the client.
func kafkaBroker(c *mq.Client, u brokerurl.URL, order redeliver.Order) *broker {
	return &broker{
		kind:   u.Broker,
		queues: c.Operations().DeadLetterQueues,
		ownerOf: func(ctx context.Context, dlq string) (topic, group string, err error) {
			all, err := c.Operations().DeadLetterQueues(ctx)
			if err != nil {
				return "", "", err
			}
			return ownerOnKafka(all, dlq)
		},
		dlq: func(ctx context.Context, s subject) (deadletter.Queue, error) {
			if s.group == "" {
				return nil, missing("--group", "the consumer group that failed the messages")
			}
			return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{
				Topic: s.topic, Group: s.group, DLQ: s.dlq, ReplayTo: s.replayTo, ReadBy: s.readBy, Lease: s.lease,
			})
		},
		doctor: c.Operations().Doctor,
		pauser: c.Operations(),
		plan: func(ctx context.Context, topic string) (*planned, error) {
			p, err := c.Plan(ctx, topic)
			if err != nil {
				return nil, err
			}
			return newPlanned(u.Broker, p, kafkaFormatters(p, u.Hosts, order)), nil
		},
		waiting: func(ctx context.Context, s subject) (*waiting, error) {
			w, err := c.Operations().Waiting(ctx, mq.WaitingConfig{Topic: s.topic, Group: s.group})
			if err != nil {
				return nil, err
			}
			return &waiting{levels: w.Levels, commands: w, pauser: w, close: w.Close}, nil
		},
		close: c.Close,
	}
}

// ownerOnKafka returns the topic and the group of a DLQ.
func ownerOnKafka(all []deadletter.Info, dlq string) (topic, group string, err error) {
	i := slices.IndexFunc(all, func(info deadletter.Info) bool { return info.DLQ == dlq })
	switch {
	case i < 0:
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].DLQ
		}
		return "", "", failed(codeFailed, "there is no DLQ %s; for one that another framework fills, give --topic and --group%s", dlq, didYouMean(dlq, "", names))
	case all[i].Origin == "":
		return "", "", usagef("the name %s contains no topic and group: give --topic and --group", dlq)
	default:
		return all[i].Origin, all[i].Group, nil
	}
}
