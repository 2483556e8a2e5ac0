package kafkashare

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Only an empty poll waits after an error: records of other partitions are not delayed.
func TestUnreadPartitionsDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(map[string]int)
		sink := redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeNotRead {
				reports[c.Detail]++
			}
		})
		r := &reader{sub: &engine.Subscription{Sink: sink}, unread: make(map[partition]unreadReport)}
		topic := kgo.FetchTopic{Topic: "orders.billing.retry"}
		for n := range int32(3) {
			topic.Partitions = append(topic.Partitions, kgo.FetchPartition{Partition: n, Err: errors.New("offline")})
		}
		poll := func(records ...*kgo.Record) time.Duration {
			begin, fetched := time.Now(), topic
			fetched.Partitions = append(slices.Clone(topic.Partitions), kgo.FetchPartition{Partition: 3, Records: records})
			if lost := r.reportFetchErrors(t.Context(), kgo.Fetches{{Topics: []kgo.FetchTopic{fetched}}}, fetchRequest, "?"); lost != nil {
				t.Errorf("the member ends: %v", lost)
			}
			return time.Since(begin)
		}
		if took := poll(&kgo.Record{}); took != 0 {
			t.Errorf("a poll with a record was delayed by %s", took)
		}
		for range 61 {
			if took := poll(); took != time.Second {
				t.Fatalf("an empty poll was delayed by %s, want one second", took)
			}
		}
		for n := range 3 {
			if got := reports[fmt.Sprintf("%s/%d?", topic.Topic, n)]; got != 2 {
				t.Errorf("partition %d was reported %d times in a minute and a second, want twice", n, got)
			}
		}
	})
}
