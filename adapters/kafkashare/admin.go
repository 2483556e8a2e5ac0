package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// admin asks the brokers about topics, settings and groups.
type admin struct{ client *kgo.Client }

// brokerError returns the error of a code, with its explanation.
func brokerError(code int16, text *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && text != nil && *text != "" {
		return fmt.Errorf("%w: %s", err, *text)
	}
	return err
}

// topics asks for the named topics that exist, or for all, and for the brokers. kadm's answer may be 5 s old.
func (a admin) topics(ctx context.Context, names ...string) (map[string]kmsg.MetadataResponseTopic, []kmsg.MetadataResponseBroker, error) {
	found, failed, brokers, err := a.askBrokers(ctx, names)
	for name, failure := range failed {
		err = errors.Join(err, explain(kafkaname.ToTopic("Metadata", "Describe", name), failure))
	}
	if err != nil {
		return nil, nil, err
	}
	return found, brokers, nil
}

// ask is topics, but returns an error for each topic that it may not ask about.
func (a admin) ask(ctx context.Context, names ...string) (found map[string]kmsg.MetadataResponseTopic, failed map[string]error, err error) {
	found, failed, _, err = a.askBrokers(ctx, names)
	return found, failed, err
}

func (a admin) askBrokers(ctx context.Context, names []string) (found map[string]kmsg.MetadataResponseTopic, failed map[string]error, brokers []kmsg.MetadataResponseBroker, err error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	resp, err := req.RequestWith(ctx, a.client)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kafkashare: listing topics: %w", err)
	}
	found, failed = make(map[string]kmsg.MetadataResponseTopic), make(map[string]error)
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil && len(t.Partitions) > 0:
			found[*t.Topic] = t
		case err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable):
			failed[*t.Topic] = fmt.Errorf("kafkashare: asking about topic %s: %w", *t.Topic, err)
		}
	}
	return found, failed, resp.Brokers, nil
}

// settings are a configuration: all values by name, and those that are set for the group itself.
type settings struct{ all, own map[string]string }

// Brokers learn of a new topic or setting at different times.
const (
	maxAskTries = 100
	askPause    = 100 * time.Millisecond
)

// settings returns the configuration of a topic, a group or a broker.
func (a admin) settings(ctx context.Context, kind kmsg.ConfigResourceType, name string) (s settings, err error) {
	for range maxAskTries {
		s, err = a.describe(ctx, kind, name)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || wait.For(ctx, askPause) != nil {
			break
		}
	}
	return s, err
}

func (a admin) describe(ctx context.Context, kind kmsg.ConfigResourceType, name string) (settings, error) {
	s := settings{make(map[string]string), make(map[string]string)}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name}}
	resp, err := req.RequestWith(ctx, a.client)
	if err != nil {
		return s, fmt.Errorf("kafkashare: reading the settings of %s: %w", name, err)
	}
	for _, r := range resp.Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			about := kafkaname.ToTopic("DescribeConfigs", "DescribeConfigs", name)
			if kind == kmsg.ConfigResourceTypeGroupConfig {
				about.Kind = "group"
			}
			return s, explain(about, fmt.Errorf("kafkashare: reading the settings of %s: %w", name, err))
		}
		for _, c := range r.Configs {
			if c.Value == nil {
				continue
			}
			s.all[c.Name] = *c.Value
			if c.Source == kmsg.ConfigSourceGroupConfig {
				s.own[c.Name] = *c.Value
			}
		}
	}
	return s, nil
}

// configureGroup sets settings of a group.
func (a admin) configureGroup(ctx context.Context, group string, values map[string]string) error {
	res := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: group}
	for name, value := range values {
		res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: &value})
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, a.client)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		err = errors.Join(err, brokerError(r.ErrorCode, r.ErrorMessage))
	}
	return err
}

// create creates a topic, without the settings that the broker refuses. An existing one is no error. batchBytes is the
// size of the largest batch that it must take.
func (a admin) create(ctx context.Context, t plannedTopic, batchBytes int) error {
	err := (&kafkaname.Creation{
		Topic: t.Name, Settings: t.Settings, Kept: redeliver.MaxWait, BatchBytes: batchBytes,
		Try: func(settings map[string]string) error {
			values := make(map[string]*string)
			for k, v := range settings {
				values[k] = &v
			}
			resp, err := kadm.NewClient(a.client).CreateTopic(ctx, t.Partitions, t.Replicas, values, t.Name)
			if err != nil && resp.ErrMessage != "" {
				err = fmt.Errorf("%w: %s", err, resp.ErrMessage)
			}
			return err
		},
		Refuses: func(err error) bool {
			return errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation)
		},
	}).Create()
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return explain(kafkaname.ToTopic("CreateTopics", "Create", t.Name), fmt.Errorf("kafkashare: creating topic %s with partitions=%d, replicas=%d, %s: %w", t.Name, t.Partitions, t.Replicas, kafkaname.SettingsText(t.Settings), err))
	}
	return nil
}

// awaitLeaders returns when all partitions of the topics have a leader.
func (a admin) awaitLeaders(ctx context.Context, names ...string) (map[string]kmsg.MetadataResponseTopic, error) {
	for try := 0; ; try++ {
		found, _, err := a.topics(ctx, names...)
		if err != nil {
			return nil, err
		}
		missing := len(found) < len(names)
		for _, t := range found {
			for _, p := range t.Partitions {
				missing = missing || p.Leader < 0
			}
		}
		if !missing {
			return found, nil
		}
		if try == maxAskTries || wait.For(ctx, askPause) != nil {
			return nil, fmt.Errorf("kafkashare: topics %v do not have leaders on all partitions: check whether all brokers are up", names)
		}
	}
}
