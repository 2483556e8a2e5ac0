package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// nobody is the group of a client that joins none.
const nobody = "redeliver-command"

func openKafka(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	client := u.Sarama()
	client.ClientID = "redeliver-command"
	c, err := kafka.Open(ctx, kafka.Config{
		Brokers: u.Hosts, Group: cmp.Or(s.group, nobody), Policy: s.policy, Sink: silence, Sarama: client,
	})
	if err != nil {
		return nil, err
	}
	return &broker{
		kind:   u.Broker,
		old:    oldOnKafka(c, s.group),
		queues: func(context.Context) ([]deadletter.Info, error) { return c.DeadLetterQueues() },
		whose: func(_ context.Context, dlq string) (topic, group string, err error) {
			all, err := c.DeadLetterQueues()
			if err != nil {
				return "", "", err
			}
			return whoseOnKafka(all, dlq)
		},
		dlq: func(ctx context.Context, s subject) (deadletter.Queue, error) {
			if s.group == "" {
				return nil, usagef("which group has failed? give --group")
			}
			return c.DeadLetters(ctx, kafka.DeadLetterConfig{
				Topic: s.topic, Group: s.group, DLQ: s.dlq, Back: s.back, ReadBy: s.readBy, Lease: s.lease,
			})
		},
		doctor: func(ctx context.Context, topic string, how delayqueue.Examination) (*delayqueue.Diagnosis, error) {
			if s.group == "" {
				return nil, usagef("which group consumes it? give --group")
			}
			return c.Doctor(ctx, topic, how)
		},
		plan: func(_ context.Context, topic string) (*planned, error) {
			if s.group == "" {
				return nil, usagef("which group would subscribe? give --group")
			}
			p, err := c.Plan(topic)
			if err != nil {
				return nil, err
			}
			return planOnKafka(p, u.Hosts), nil
		},
		waiting: func(ctx context.Context, s subject) (*waiting, error) {
			w, err := c.Waiting(ctx, kafka.WaitingConfig{Topic: s.topic, Group: s.group})
			if err != nil {
				return nil, err
			}
			return &waiting{levels: w.Levels, commands: w, close: w.Close}, nil
		},
		close: c.Close,
	}, nil
}

func oldOnKafka(c *kafka.Client, group string) *oldLevels {
	return &oldLevels{func(ctx context.Context, topic string) ([]delayqueue.OldLevel, error) {
		if group == "" {
			return nil, usagef("which group consumes it? give --group")
		}
		return c.OldLevels(ctx, topic)
	}, c.RemoveOldLevels}
}

// whoseOnKafka finds a DLQ by its name, which has a topic and a group in it.
func whoseOnKafka(all []deadletter.Info, dlq string) (topic, group string, err error) {
	i := slices.IndexFunc(all, func(info deadletter.Info) bool { return info.DLQ == dlq })
	switch {
	case i < 0:
		return "", "", failed(codeFailed, "there is no DLQ %s that redeliver knows by its name; one that somebody else fills needs --topic and --group", dlq)
	case all[i].Origin == "":
		return "", "", usagef("the name %s does not say whose DLQ it is: give --topic and --group", dlq)
	default:
		return all[i].Origin, all[i].Group, nil
	}
}

func planOnKafka(p *kafka.Plan, hosts []string) *planned {
	row := planRow{Broker: string(brokerurl.Kafka), Origin: p.Origin, Group: p.Group, LongestWait: p.LongestWait.String(), Notes: p.Notes}
	for _, t := range p.Topics {
		row.Places = append(row.Places, placeRow{
			Name: t.Name, Kind: t.Kind, Level: level(t.Level), Partitions: t.Partitions, Replicas: t.Replicas,
			Settings: settings(t.Settings), Exists: t.Exists, Old: t.Old,
		})
	}
	for _, d := range p.Delays {
		row.add(d.Retry, d.Delay, d.Jitter, d.Hops, d.Mechanism)
	}
	return &planned{row, p.String(), kafkaMakers(p, hosts)}
}
