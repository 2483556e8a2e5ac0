package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// newest returns a configuration with which a new group begins at the end of the origin, as with sarama's default. It
// looks for new partitions often.
func newest() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetNewest
	cfg.Metadata.RefreshFrequency = 100 * time.Millisecond
	return cfg
}

// putOnPartitions writes a record to each of n partitions, and returns their ids.
func putOnPartitions(t *testing.T, p fixture, name string, n int) (ids []string) {
	t.Helper()
	var recs []*kgo.Record
	for i := range n {
		rec := order(p.topic, name+string(rune('0'+i)))
		rec.Partition = int32(i)
		recs, ids = append(recs, rec), append(ids, string(rec.Key))
	}
	put(t, p.addrs, recs...)
	return ids
}

func addPartitions(t *testing.T, p fixture, n int) {
	t.Helper()
	admin := kadm.NewClient(independent(t, p.addrs))
	res, err := admin.UpdatePartitions(t.Context(), n, p.topic)
	if err != nil || res.Error() != nil {
		t.Fatal(err, res.Error())
	}
	eventually(t, "the broker shows the new partitions", func() bool {
		topics, err := admin.ListTopics(t.Context(), p.topic)
		return err == nil && len(topics[p.topic].Partitions) == n
	})
}

// wantOnlyAttempted checks that only these ids were attempted.
func wantOnlyAttempted(t *testing.T, ev *events, ids ...string) {
	t.Helper()
	ran := ev.attempts()
	for _, id := range ids {
		delete(ran, id)
	}
	if len(ran) > 0 {
		t.Errorf("messages ran that had been written before the group began: %v", ran)
	}
}

// Even with Newest, a partition that is added later is read from its beginning: the group may learn of it late.
func TestOnKafkaANewPartitionIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	cfg := kafka.Config{Policy: quick(1), Sarama: newest()}
	t.Run("while members run", func(t *testing.T) {
		t.Parallel()
		p := onKafka(t)
		cfg := cfg
		cfg.Brokers, cfg.Group = p.addrs, p.group
		putOnPartitions(t, p, "old-", 4)
		c, ev := open(t, cfg)
		route(t, c, p.topic, func(*message.Message) error { return nil })
		ev.awaitJoined(t, 1)
		addPartitions(t, p, 6)
		ids := putOnPartitions(t, p, "new-", 6)
		ev.awaitEnds(t, ids...)
		wantOnlyAttempted(t, ev, ids...)
	})
	t.Run("while none runs", func(t *testing.T) {
		t.Parallel()
		p := onKafka(t)
		cfg := cfg
		cfg.Brokers, cfg.Group = p.addrs, p.group
		putOnPartitions(t, p, "old-", 4)
		first, before := open(t, cfg)
		if _, err := first.Subscriber().Subscribe(t.Context(), p.topic); err != nil {
			t.Fatal(err)
		}
		before.awaitJoined(t, 1)
		if err := first.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		addPartitions(t, p, 6)
		ids := putOnPartitions(t, p, "new-", 6)
		c, ev := open(t, cfg)
		route(t, c, p.topic, func(*message.Message) error { return nil })
		ev.awaitEnds(t, ids...)
		wantOnlyAttempted(t, ev, ids...)
	})
}

// A group starts once, however many members it has, and whatever other clients of the group have committed before.
func TestANewGroupBeginsAtTheEndOnEveryPartition(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]sarama.BalanceStrategy{"eager": sarama.NewBalanceStrategyRange(), "cooperative": sarama.NewBalanceStrategyCooperativeSticky()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
			putOnPartitions(t, p, "old-", 4)
			foreignOffsets := make(kadm.Offsets)
			foreignOffsets.AddOffset(p.topic, 0, 1, -1)
			if err := kadm.NewClient(independent(t, p.addrs)).CommitAllOffsets(t.Context(), p.group, foreignOffsets); err != nil {
				t.Fatal(err)
			}
			ev := newEvents()
			for range 3 {
				cfg := newest()
				cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
				c, _ := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: cfg, Sink: ev})
				route(t, c, p.topic, func(*message.Message) error { return nil })
			}
			ev.awaitJoined(t, 3)
			ids := putOnPartitions(t, p, "new-", 4)
			ev.awaitEnds(t, ids...)
			wantOnlyAttempted(t, ev, ids...)
		})
	}
}
