package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/redeliver/redeliver/internal/adaptertest"
)

// MakeTopic creates a topic with a unique name, and returns when it can be used. On a slow machine the broker may
// report a timeout and still create it.
func MakeTopic(tb testing.TB, adm *kadm.Client, partitions int32, configs map[string]*string, topic string) {
	tb.Helper()
	err := retryUntil(tb.Context(), func(ctx context.Context) (bool, error) {
		_, err := adm.CreateTopic(ctx, partitions, -1, configs, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			err = nil
		}
		return !errors.Is(err, kerr.RequestTimedOut), err
	})
	if err != nil {
		tb.Fatalf("creating topic %s: %v", topic, err)
	}
	if err := AwaitTopics(tb.Context(), adm, topic); err != nil {
		tb.Fatal(err)
	}
}

// AwaitTopics waits until new topics can be used. On a machine with many tests the brokers list them, and elect their
// leaders, seconds after the controller has created them. Meanwhile a subscription fails because the topic does not
// exist.
func AwaitTopics(ctx context.Context, adm *kadm.Client, topics ...string) error {
	err := retryUntil(ctx, func(ctx context.Context) (bool, error) {
		ends, err := adm.ListEndOffsets(ctx, topics...)
		err = errors.Join(err, ends.Error())
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("topics %q were created but cannot be used: %w", topics, err)
	}
	return nil
}

// DropTopic deletes a topic, and returns when the brokers no longer list it. Until then they write records to the
// deleted log and confirm them.
func DropTopic(tb testing.TB, adm *kadm.Client, topic string) {
	tb.Helper()
	var dropped kadm.TopicID
	err := retryUntil(context.Background(), func(ctx context.Context) (bool, error) { // tb.Context has ended
		details, err := adm.ListTopics(kadm.WithAuthorizedOps(ctx), topic) // without the option it may answer from a cache
		if err != nil || !details.Has(topic) {
			return err == nil, err
		}
		if dropped != (kadm.TopicID{}) {
			return details[topic].ID != dropped, nil
		}
		if _, err = adm.DeleteTopic(ctx, topic); err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			dropped, err = details[topic].ID, nil
		}
		return false, err
	})
	if err != nil {
		tb.Errorf("deleting topic %s: %v", topic, err)
	}
}

// retryUntil calls ask until it is done or the kit's timeout is over, and returns the last error.
func retryUntil(ctx context.Context, ask func(context.Context) (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, adaptertest.Timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ask(ctx)
		if done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// AwaitSetting waits until the broker reports an altered setting of topics.
func AwaitSetting(tb testing.TB, adm *kadm.Client, setting, value string, topics ...string) {
	tb.Helper()
	err := retryUntil(tb.Context(), func(ctx context.Context) (bool, error) {
		all, err := adm.DescribeTopicConfigs(ctx, topics...)
		for _, topic := range all {
			set := slices.ContainsFunc(topic.Configs, func(c kadm.Config) bool { return c.Key == setting && c.MaybeValue() == value })
			if err == nil && !set {
				err = fmt.Errorf("%s of %s is not %s: %w", setting, topic.Name, value, topic.Err)
			}
		}
		return err == nil, err
	})
	if err != nil {
		tb.Fatal(err)
	}
}
