package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// DeadLetterQueues lists the DLQs of the cluster, of all groups, by name: the topics that end in
// ".dlq". Origin, Group and ReplayTo come from the name. They are empty if the name does not show them,
// because it was too long and was cut, or because the topic belongs to another program. DLQs with
// other names (Config.Names) are not found. ctx is checked before the request; a request that has
// begun ends by the timeouts of Config.Sarama.
func (c *Client) DeadLetterQueues(ctx context.Context) ([]deadletter.Info, error) {
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
		// A user's topic "payments.eu.dlq" looks like one of ours. Without a way back, it never had a subscription.
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

// subscriptionOf returns topic and group of a DLQ's name. An escaped group has no dots, so the last one separates the
// two.
func subscriptionOf(dlq string) (topic, group string, ok bool) {
	name := strings.TrimSuffix(dlq, wirename.DLQSuffix)
	dot := strings.LastIndexByte(name, '.')
	if dot < 1 || dot == len(name)-1 {
		return "", "", false
	}
	topic, group = name[:dot], kafkaname.UnescapeGroup(name[dot+1:])
	return topic, group, kafkaname.Base(topic, group) == name
}
