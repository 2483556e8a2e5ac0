package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/dlq"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/mq"
)

// defaultLease is how long the claim of a dead runner excludes the next one.
const defaultLease = 30 * time.Second

// DeadLetters opens the DLQ of a topic and a group. The topic of the DLQ must exist. Its companion,
// "<dlq>.state", is created with the first write to it. Keep the client open while you use the
// queue.
func (c *client) DeadLetters(ctx context.Context, cfg mq.DeadLetterConfig) (deadletter.Queue, error) {
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	cfg.Group = cmp.Or(cfg.Group, c.cfg.Group)
	var ps check.Problems
	ps = append(ps, cfg.Unused("Kafka removes no record because it was delivered too often", "DeliveryLimit")...)
	kafkaname.CheckTopic(&ps, "Topic", cfg.Topic)
	kafkaname.CheckGroup(&ps, "Group", cfg.Group)
	c.cfg.names().Check(&ps, cfg.Topic, cfg.Group)
	info := c.deadInfo(cfg.Topic, cfg.Group)
	foreign := cfg.DLQ != "" && cfg.DLQ != info.DLQ
	if foreign {
		kafkaname.CheckTopic(&ps, "DLQ", cfg.DLQ)
		rules.CheckOwnName(&ps, "topic", "DLQ", cfg.DLQ, cfg.Topic, info.ReplayTo)
		info.OwnDLQ, info.DLQ = info.DLQ, cfg.DLQ
	}
	foreignBack := cfg.ReplayTo != "" && cfg.ReplayTo != info.ReplayTo
	checkForeign(&ps, cfg, foreign, info.DLQ)
	if foreignBack {
		info.ReplayTo = cfg.ReplayTo
	}
	info.ReadBy = cfg.ReadBy
	kafkaname.CheckTopic(&ps, "the DLQ's state", info.DLQ+wirename.StateSuffix)
	ps.CheckDuration("Lease", cfg.Lease, time.Millisecond, 0)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	// A client of its own: fetches of megabytes hold up other requests of their connection.
	client, err := cluster.Dial(ctx, c.cfg.Brokers, c.cfg.clientConfig())
	if err != nil {
		return nil, err
	}
	q, err := dlq.Open(ctx, dlq.Config{
		Where: info, Foreign: foreign, ForeignBack: foreignBack, Lease: cfg.Lease, Connection: client, Admin: c.admin, Sink: c.cfg.Sink,
		Producer: c.producer, Brokers: c.cfg.Brokers, BatchingConfig: c.cfg.producerConfig, SendTimeout: c.cfg.SendTimeout, SpringHeaders: c.cfg.SpringHeaders,
		CreateState: func(name string, dlq *sarama.TopicMetadata) error {
			return c.topics.CreateCompanion(name, topology.State, dlq)
		},
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return driver.New(q), nil
}

// deadInfo returns where the dead letters of a topic and a group are.
func (c *client) deadInfo(topic, group string) deadletter.Info {
	return deadletter.Info{
		Broker: "kafka", DLQ: c.cfg.names().DLQTopic(topic, group), Origin: topic, Group: group,
		ReplayTo: c.cfg.names().RetryTopic(topic, group), ReadEffect: deadletter.NoReadEffect,
	}
}

// checkForeign checks ReplayTo and ReadBy, which need a DLQ that another program fills.
func checkForeign(ps *check.Problems, cfg mq.DeadLetterConfig, foreign bool, dlq string) {
	const theirs = "is only for a DLQ that another program fills: name that in DLQ"
	switch {
	case cfg.ReplayTo == "":
	case !foreign:
		ps.Add("ReplayTo", cfg.ReplayTo, theirs)
	case cfg.ReplayTo == dlq:
		ps.Add("ReplayTo", cfg.ReplayTo, "must not be the DLQ itself")
	default:
		kafkaname.CheckTopic(ps, "ReplayTo", cfg.ReplayTo)
	}
	switch {
	case cfg.ReadBy == "":
	case !foreign:
		ps.Add("ReadBy", cfg.ReadBy, theirs)
	default:
		kafkaname.CheckGroup(ps, "ReadBy", cfg.ReadBy)
	}
}

// DeadLetterQueues lists the DLQs of the cluster, of all groups, by name: the topics that end in
// ".dlq". Origin, Group and ReplayTo come from the name. They are empty if the name does not show them,
// because it was too long and was cut, or because the topic belongs to another program. DLQs with
// other names (Config.Names) are not found. ctx is checked before the request. Then only the timeouts of Config.Sarama
// end the request.
func (c *client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kafka: listing DLQs: %w", context.Cause(ctx))
	}
	existing, err := c.admin.Topics()
	if err != nil {
		return nil, err
	}
	var found []deadletter.Info
	for name := range existing {
		if !strings.HasSuffix(name, wirename.DLQSuffix) {
			continue
		}
		info := deadletter.Info{Broker: "kafka", DLQ: name, ReadEffect: deadletter.NoReadEffect}
		// A user's topic "payments.eu.dlq" looks like one of ours. Without a retry topic, it never had a subscription.
		if topic, group, ok := subscriptionOf(name); ok {
			if ours := c.deadInfo(topic, group); ours.DLQ == name && existing[ours.ReplayTo] != nil {
				info = ours
			}
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(x, y deadletter.Info) int { return cmp.Compare(x.DLQ, y.DLQ) })
	return found, nil
}

// subscriptionOf returns the topic and the group in a DLQ's name. The last dot separates them: an escaped group has
// none.
func subscriptionOf(dlq string) (topic, group string, ok bool) {
	name := strings.TrimSuffix(dlq, wirename.DLQSuffix)
	dot := strings.LastIndexByte(name, '.')
	if dot < 1 || dot == len(name)-1 {
		return "", "", false
	}
	topic, group = name[:dot], kafkaname.UnescapeGroup(name[dot+1:])
	return topic, group, kafkaname.Base(topic, group) == name
}
