package kafkatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/redeliver/redeliver/adapters/adaptertest"
)

// MakeTopic creates a topic, whose name nobody else takes, and returns when it can be used. On
// a machine that stands still for seconds the broker tells that it had no time and makes it
// all the same, lists it seconds later than it has made it, and leads it later still.
func MakeTopic(tb testing.TB, adm *kadm.Client, partitions int32, configs map[string]*string, topic string) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(adaptertest.Patience)
	made := false
	for {
		var err error
		if made {
			var ends kadm.ListedOffsets
			ends, err = adm.ListEndOffsets(tb.Context(), topic)
			if err = errors.Join(err, ends.Error()); err == nil && len(ends[topic]) == int(partitions) {
				return
			}
		} else {
			_, err = adm.CreateTopic(tb.Context(), partitions, -1, configs, topic)
			made = err == nil || errors.Is(err, kerr.TopicAlreadyExists)
			if !made && !errors.Is(err, kerr.RequestTimedOut) {
				tb.Fatalf("creating topic %s: %v", topic, err)
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("topic %s cannot be used within %s: %v", topic, adaptertest.Patience, err)
		}
	}
}

// DropTopic deletes a topic, which may have gone already: a broker lists for a while what is gone.
func DropTopic(tb testing.TB, adm *kadm.Client, topic string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adaptertest.Patience) // the test's has ended
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := adm.DeleteTopic(ctx, topic)
		if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return
		}
		if !errors.Is(err, kerr.RequestTimedOut) || ctx.Err() != nil {
			tb.Errorf("deleting topic %s: %v", topic, err)
			return
		}
		<-tick.C
	}
}
