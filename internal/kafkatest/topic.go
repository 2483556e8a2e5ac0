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

	"github.com/redeliver/redeliver/adapters/adaptertest"
)

// MakeTopic creates a topic, whose name nobody else takes, and returns when it can be used. On a
// machine that stands still for seconds the broker says that it had no time, and makes it all the same.
func MakeTopic(tb testing.TB, adm *kadm.Client, partitions int32, configs map[string]*string, topic string) {
	tb.Helper()
	err := until(tb.Context(), func(ctx context.Context) (bool, error) {
		_, err := adm.CreateTopic(ctx, partitions, -1, configs, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			err = nil
		}
		return !errors.Is(err, kerr.RequestTimedOut), err
	})
	if err != nil {
		tb.Fatalf("creating topic %s: %v", topic, err)
	}
	if err := Listed(tb.Context(), adm, topic); err != nil {
		tb.Fatal(err)
	}
}

// Listed waits until topics that the controller has created can be used: on a machine that runs many tests at
// once the broker lists them seconds later, and leads them later still. A subscription gets the error meanwhile
// that there is no such topic.
func Listed(ctx context.Context, adm *kadm.Client, topics ...string) error {
	err := until(ctx, func(ctx context.Context) (bool, error) {
		ends, err := adm.ListEndOffsets(ctx, topics...)
		err = errors.Join(err, ends.Error())
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("topics %q were created, and cannot be used: %w", topics, err)
	}
	return nil
}

// DropTopic deletes a topic, which may have gone already: a broker lists for a while what is gone.
func DropTopic(tb testing.TB, adm *kadm.Client, topic string) {
	tb.Helper()
	err := until(context.Background(), func(ctx context.Context) (bool, error) { // the test's has ended
		_, err := adm.DeleteTopic(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = nil
		}
		return !errors.Is(err, kerr.RequestTimedOut), err
	})
	if err != nil {
		tb.Errorf("deleting topic %s: %v", topic, err)
	}
}

// until asks again until it is done, within the kit's time, and returns the last error.
func until(ctx context.Context, ask func(context.Context) (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, adaptertest.Timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ask(ctx)
		if done || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// AwaitSetting waits until the broker reports a setting of topics that was altered.
func AwaitSetting(tb testing.TB, adm *kadm.Client, setting, value string, topics ...string) {
	tb.Helper()
	err := until(tb.Context(), func(ctx context.Context) (bool, error) {
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
