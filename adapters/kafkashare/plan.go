package kafkashare

import (
	"context"
	"maps"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// plannedTopic is one of redeliver's topics.
type plannedTopic struct {
	Name       string
	Kind       string        // "delay", "retry" or "dlq"
	Level      time.Duration // of a delay topic
	Partitions int32
	Replicas   int16
	Settings   map[string]string
	Exists     bool // if false, Subscribe creates it
}

const (
	kindDelay = "delay"
	kindRetry = "retry"
	kindDLQ   = "dlq"
)

func (t *plannedTopic) waits() bool { return t.Kind != kindDLQ }

// Plan compares the broker with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe.
func (c *client) Plan(ctx context.Context, topic string) (*mq.Plan, error) {
	l, err := c.inspect(ctx, topic)
	if err != nil {
		return nil, err
	}
	group, _, err := c.readGroupSettings(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(group, func(name, _ string) bool { return ourGroupSettings[name] == "" && name != lockSetting })
	p := &mq.Plan{
		Server: "Kafka share groups", Origin: topic, Group: l.group, Settings: group,
		Rights: l.rights(c.cfg.retryGroup()), LongestWait: redeliver.MaxWait, Notes: engine.Notes(l.policy),
	}
	for _, t := range l.topics {
		p.Places = append(p.Places, mq.Place{
			Name: t.Name, Kind: t.Kind, Level: t.Level, Partitions: t.Partitions, Replicas: t.Replicas, Settings: mq.SettingsOf(t.Settings), Exists: t.Exists, Messages: -1,
		})
	}
	p.Notes = append(p.Notes, "the consumer group "+c.cfg.retryGroup()+" reads the delay topics and the retry topic")
	var listed bool
	p.Delays, listed = delayqueue.PlanDelays(l.policy, func(d time.Duration) ([]time.Duration, string) {
		return l.ladder.Describe(d, "delay topic", "the retry topic")
	})
	if !listed {
		p.Notes = append(p.Notes, "the backoff cannot list its delays; the levels are the default ones")
	}
	return p, nil
}

// rights returns the rights of the members. Read, Write and Delete include Describe. Delete is for settled records.
func (l *layout) rights(retryGroup string) []mq.Right {
	const read, write, deletes, describe = "Read", "Write", "Delete", "DescribeConfigs"
	all := []mq.Right{{Resource: "topic", Name: l.origin, Operations: []string{read, describe}}}
	for _, t := range l.topics {
		if t.waits() {
			all = append(all, mq.Right{Resource: "topic", Name: t.Name, Operations: []string{read, write, deletes, describe}})
		} else {
			all = append(all, mq.Right{Resource: "topic", Name: t.Name, Operations: []string{write, describe}})
		}
	}
	return append(all, mq.Right{Resource: "topic", Name: l.control, Operations: []string{read}}, mq.Right{Resource: "group", Name: l.group, Operations: []string{read, describe}}, mq.Right{Resource: "group", Name: retryGroup, Operations: []string{read}})
}
