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

	"github.com/redeliver/redeliver/internal/wait"
)

// admin asks the brokers about topics, settings and groups.
type admin struct{ client *kgo.Client }

// brokerError is an error code of a broker with its explanation.
func brokerError(code int16, text *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && text != nil && *text != "" {
		return fmt.Errorf("%w: %s", err, *text)
	}
	return err
}

// topics returns the metadata of the named topics that exist, and the brokers.
func (a admin) topics(ctx context.Context, names ...string) (map[string]kmsg.MetadataResponseTopic, []kmsg.MetadataResponseBroker, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.client)
	if err != nil {
		return nil, nil, fmt.Errorf("kafkashare: listing topics: %w", err)
	}
	found := make(map[string]kmsg.MetadataResponseTopic)
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil && len(t.Partitions) > 0:
			found[*t.Topic] = t
		case err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable):
			return nil, nil, fmt.Errorf("kafkashare: asking about topic %s: %w", *t.Topic, err)
		}
	}
	return found, resp.Brokers, nil
}

// setting is the value of a setting.
type setting struct {
	value string
	own   bool // set for this very resource
}

// Brokers learn of a new topic or setting at different times.
const (
	maxAskTries = 100
	askPause    = 100 * time.Millisecond
)

// settings returns the configuration of a topic, a group or a broker.
func (a admin) settings(ctx context.Context, kind kmsg.ConfigResourceType, name string) (all map[string]setting, err error) {
	for range maxAskTries {
		all, err = a.describe(ctx, kind, name)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || wait.For(ctx, askPause) != nil {
			break
		}
	}
	return all, err
}

func (a admin) describe(ctx context.Context, kind kmsg.ConfigResourceType, name string) (map[string]setting, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kind, name
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, a.client)
	if err == nil && len(resp.Resources) != 1 {
		err = errors.New("no answer")
	}
	if err == nil {
		err = brokerError(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
	}
	if err != nil {
		return nil, fmt.Errorf("kafkashare: reading the settings of %s: %w; the user needs DescribeConfigs on it", name, err)
	}
	all := make(map[string]setting)
	for _, c := range resp.Resources[0].Configs {
		if c.Value != nil {
			own := c.Source == kmsg.ConfigSourceGroupConfig || c.Source == kmsg.ConfigSourceDynamicTopicConfig
			all[c.Name] = setting{*c.Value, own}
		}
	}
	return all, nil
}

// configureGroup sets settings of a group.
func (a admin) configureGroup(ctx context.Context, group string, values map[string]string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range values {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, a.client)
	if err == nil && len(resp.Resources) == 1 {
		err = brokerError(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
	}
	return err
}

// create creates a topic. An existing one is no error.
func (a admin) create(ctx context.Context, name string, partitions int32, replicas int16, settings map[string]string) error {
	values := make(map[string]*string)
	for k, v := range settings {
		values[k] = &v
	}
	resp, err := kadm.NewClient(a.client).CreateTopic(ctx, partitions, replicas, values, name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("kafkashare: creating topic %s with partitions=%d, replicas=%d, %v: %w %s", name, partitions, replicas, settings, err, resp.ErrMessage)
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
