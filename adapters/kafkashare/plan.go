package kafkashare

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// Plan describes how the messages of a topic wait: the topics and the configuration of the share
// group, as they are or will be, and how each delay of the policy is spent.
type Plan struct {
	Origin, Group, RetryGroup string
	Topics                    []PlannedTopic
	// GroupSettings are the settings of the share group that redeliver relies on.
	GroupSettings map[string]string
	Delays        []delayqueue.PlannedDelay
	// Rights are those that the members need if all topics and the group's settings exist
	// (Config.NoProvisioning). Otherwise they also need Create on the topics and AlterConfigs on
	// Group.
	Rights []Right
	// LongestWait is the longest wait that a handler may ask for.
	LongestWait time.Duration
	Notes       []string
}

// PlannedTopic is one of redeliver's topics.
type PlannedTopic struct {
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

func (t *PlannedTopic) waits() bool { return t.Kind != kindDLQ }

// Right is an access right of a principal on Kafka, in the terms of its ACLs.
type Right struct {
	Resource   string // "topic" or "group"
	Name       string
	Operations []string // such as "Read" and "Write", as kafka-acls.sh names them
}

// Plan compares the broker with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
	l, err := c.inspect(ctx, topic)
	if err != nil {
		return nil, err
	}
	group, _, err := c.readGroupSettings(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(group, func(name, _ string) bool { return ourGroupSettings[name] == "" && name != lockSetting })
	p := &Plan{
		Origin: topic, Group: l.group, RetryGroup: c.cfg.retryGroup(), Topics: l.topics, GroupSettings: group,
		Rights: l.rights(c.cfg.retryGroup()), LongestWait: redeliver.MaxWait, Notes: engine.Notes(l.policy),
	}
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
func (l *layout) rights(retryGroup string) []Right {
	const read, write, deletes, describe = "Read", "Write", "Delete", "DescribeConfigs"
	all := []Right{{"topic", l.origin, []string{read, describe}}}
	for _, t := range l.topics {
		if t.waits() {
			all = append(all, Right{"topic", t.Name, []string{read, write, deletes, describe}})
		} else {
			all = append(all, Right{"topic", t.Name, []string{write, describe}})
		}
	}
	return append(all, Right{"topic", l.control, []string{read}}, Right{"group", l.group, []string{read, describe}}, Right{"group", retryGroup, []string{read}})
}

// String returns the plan as a text for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, share group %s, consumer group %s\n\n", p.Origin, p.Group, p.RetryGroup)
	delayqueue.WriteTable(&b, "topic\tkind\tpartitions\treplicas\t", func(w io.Writer) {
		for _, t := range p.Topics {
			state := "is created"
			if t.Exists {
				state = "exists"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Name, t.Kind, t.Partitions, t.Replicas, state)
		}
	})
	delayqueue.WriteTable(&b, "setting of the share group\t", func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(p.GroupSettings)) {
			fmt.Fprintf(w, "%s\t%s\n", name, p.GroupSettings[name])
		}
	})
	delayqueue.WriteDelays(&b, "waits on", p.Delays)
	fmt.Fprintf(&b, "longest wait that a handler may ask for: %s; never early, a few milliseconds late\n", limits.DurationText(p.LongestWait))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
