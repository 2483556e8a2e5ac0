package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/shell"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/mq"
)

// openKafkaShare opens a cluster for share groups. Their DLQs and pauses are as with openKafka. Their consumers read no
// commands about waiting messages and report no policy, so some functions are not supported: see abilityTable.
func openKafkaShare(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	c, err := newKafkaClient(ctx, u, s)
	if err != nil {
		return nil, err
	}
	// The topics on which messages wait contain the share group's name, not that of the consumer group that reads them.
	ofShareGroup := func(suffix string) func(topic, group string) string {
		return func(topic, group string) string {
			return kafkaname.Base(topic, strings.TrimSuffix(group, wirename.ShareRetryGroup)) + suffix
		}
	}
	retries, err := kafka.Open(ctx, kafka.Config{
		Brokers: u.Hosts, Group: unusedGroup, Sink: discardEvents, Sarama: kafkaClient(u),
		Names: kafka.Names{Retry: ofShareGroup(wirename.RetrySuffix), Control: ofShareGroup(wirename.ControlSuffix)},
	})
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	b := kafkaBroker(c, u, s.policy.Order)
	b.plan = func(ctx context.Context, topic string) (p *planned, err error) {
		err = withShareClient(ctx, u, s, func(share *mq.Client) error {
			plan, err := share.Plan(ctx, topic)
			if err != nil {
				return err
			}
			operator, err := c.Plan(ctx, topic)
			if err == nil {
				p = planOnKafkaShare(plan, operator, u.Hosts)
			}
			return err
		})
		return p, err
	}
	b.doctor = func(ctx context.Context, topic string, how doctor.Examination) (d *doctor.Diagnosis, err error) {
		err = withShareClient(ctx, u, s, func(share *mq.Client) error {
			d, err = share.Operations().Doctor(ctx, topic, how)
			return err
		})
		return d, err
	}
	b.waiting = func(ctx context.Context, s subject) (*waiting, error) {
		w, err := retries.Operations().Waiting(ctx, mq.WaitingConfig{Topic: s.topic, Group: s.group + wirename.ShareRetryGroup})
		if err != nil {
			return nil, err
		}
		return &waiting{levels: w.Levels, pauser: w, notes: []string{"FIRST DUE is when the first message leaves its level"}, close: w.Close}, nil
	}
	b.close = func(ctx context.Context) error { return errors.Join(retries.Close(ctx), c.Close(ctx)) }
	return b, nil
}

// withShareClient calls do with a client of the group of s. Only plan and doctor have a group and need such a client.
func withShareClient(ctx context.Context, u brokerurl.URL, s setup, do func(*mq.Client) error) error {
	c, err := kafkashare.Open(ctx, kafkashare.Config{
		Brokers: u.Hosts, Group: s.group, Policy: s.policy, Sink: discardEvents, Options: u.Franz("redeliver-command"),
	})
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close(ctx))
}

// planOnKafkaShare returns a plan of a share group. operator is the plan of adapters/kafka for a group of this name: the
// DLQ is the same, and so are the rights for it.
func planOnKafkaShare(p, operator *mq.Plan, hosts []string) *planned {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(p.Settings)) {
		values = append(values, name+"="+p.Settings[name])
	}
	p.Notes = append(p.Notes, fmt.Sprintf("the share group has or gets these settings; with NoProvisioning set them first: kafka-configs.sh --alter --entity-type groups --entity-name %s --add-config %s",
		shell.Quote(p.Group), strings.Join(values, ",")))
	p.OperatorPlaces = operator.OperatorPlaces
	p.OperatorRights = append(slices.Clip(operator.OperatorRights),
		mq.Right{Resource: "group", Name: p.Group, Operations: []string{"DescribeConfigs"}},
		mq.Right{Resource: "group", Name: p.Group + wirename.ShareRetryGroup, Operations: []string{"Describe"}})
	return newPlanned(brokerurl.KafkaShare, p, kafkaFormatters(p, hosts, redeliver.OrderFirstAttempts))
}
