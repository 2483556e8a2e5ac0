package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// newest returns a configuration that looks for new partitions often, with sarama's default for Offsets.Initial.
func newest() *sarama.Config {
	cfg := sarama.NewConfig()
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

// Even with SkipExisting, a partition that is added later is read from its beginning: the group may learn of it late.
func TestOnKafkaANewPartitionIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	cfg := kafka.Config{Policy: quick(1), Sarama: newest(), SkipExisting: true}
	t.Run("while members run", func(t *testing.T) {
		t.Parallel()
		p := onKafka(t)
		cfg := cfg
		cfg.Brokers, cfg.Group = p.addrs, p.group
		putOnPartitions(t, p, "old-", 4)
		c, ev := openClient(t, cfg)
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
		first, before := openClient(t, cfg)
		if _, err := first.Subscriber().Subscribe(t.Context(), p.topic); err != nil {
			t.Fatal(err)
		}
		before.awaitJoined(t, 1)
		if err := first.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		addPartitions(t, p, 6)
		ids := putOnPartitions(t, p, "new-", 6)
		c, ev := openClient(t, cfg)
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
				c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: cfg, SkipExisting: true, Sink: ev})
				route(t, c, p.topic, func(*message.Message) error { return nil })
			}
			ev.awaitJoined(t, 3)
			ids := putOnPartitions(t, p, "new-", 4)
			ev.awaitEnds(t, ids...)
			wantOnlyAttempted(t, ev, ids...)
		})
	}
}

// With sarama's default, a new group would skip what was written before.
func TestANewGroupThatWouldSkipRecordsIsRefused(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	client, err := sarama.NewClient(p.addrs, newest())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	cfg := kafka.Config{Group: p.group, Policy: quick(1)}
	own := cfg
	own.Brokers, own.Sarama = p.addrs, newest()
	handle := func(context.Context, *sarama.ConsumerMessage) error { return nil }
	ways := map[string]func(ctx context.Context) error{
		"Subscribe": func(ctx context.Context) error {
			c, _ := openClient(t, own)
			_, err := c.Subscriber().Subscribe(ctx, p.topic)
			return err
		},
		"Consume": func(ctx context.Context) error {
			return kafka.Consume(ctx, client, cfg, []string{p.topic}, handle)
		},
		"ConsumeBatch": func(ctx context.Context) error {
			return kafka.ConsumeBatch(ctx, client, cfg, []string{p.topic}, redeliver.BatchConfig{}, func(context.Context, *kafka.Batch) error { return nil })
		},
	}
	begin := func(t *testing.T, call func(context.Context) error) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // Consume returns at its end, without an error
		defer cancel()
		return call(ctx)
	}
	putOnPartitions(t, p, "old-", 4)
	for name, call := range ways {
		err := begin(t, call)
		if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "4 records of topic orders") || !strings.Contains(err.Error(), "SkipExisting") {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg.SkipExisting = true // the group begins
	if err := begin(t, ways["Consume"]); err != nil {
		t.Fatal(err)
	}
	cfg.SkipExisting = false
	for name, call := range ways {
		if err := begin(t, call); err != nil {
			t.Errorf("%s, when the group has begun: %v", name, err)
		}
	}
}

// A group that has nothing to skip is not refused, and reads what is written after that check.
func TestANewGroupOfAnEmptyTopicReadsWhatIsWrittenBeforeItsFirstSession(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { putOnPartitions(t, p, "new-", 4) })
		return nil, nil, false
	})
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: newest()})
	route(t, c, p.topic, func(*message.Message) error { return nil })
	ev.awaitEnds(t, "new-0", "new-1", "new-2", "new-3")
}

// Kafka deletes the group's offsets with a topic. The levels show that the group has begun.
func TestOnKafkaARecreatedOriginIsNotSkipped(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: newest(), SkipExisting: true}
	putOnPartitions(t, p, "old-", 4)
	first, before := openClient(t, cfg)
	route(t, first, p.topic, func(*message.Message) error { return nil })
	before.awaitJoined(t, 1)
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	recreate(t, p, p.topic)
	ids := putOnPartitions(t, p, "new-", 4)
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, func(*message.Message) error { return nil })
	ev.awaitEnds(t, ids...)
}

// That the group has begun does not depend on metadata, which the broker may refuse.
func TestANewPartitionIsReadFromItsBeginningWithoutMetadata(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.OffsetMetadataTooLarge, Count: -1,
		When: func(req kmsg.Request) bool {
			commit, ok := req.(*kmsg.OffsetCommitRequest)
			return ok && slices.ContainsFunc(commit.Topics, func(t kmsg.OffsetCommitRequestTopic) bool {
				return slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) bool { return p.Metadata != nil && *p.Metadata != "" })
			})
		},
	})
	putOnPartitions(t, p, "old-", 4)
	for _, name := range []string{"first-", "second-"} {
		c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: newest(), SkipExisting: true})
		route(t, c, p.topic, func(*message.Message) error { return nil })
		ev.awaitJoined(t, 1)
		n := 4
		if name == "second-" {
			addPartitions(t, p, 6)
			n = 6
		}
		ids := putOnPartitions(t, p, name, n)
		ev.awaitEnds(t, ids...)
		wantOnlyAttempted(t, ev, ids...)
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// A group of the service's own must start at Oldest, for the levels. SkipExisting concerns only the origin.
func TestOnKafkaAWrappedGroupSkipsExistingRecords(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	putOnPartitions(t, p, "old-", 4)
	ev, _ := wrap(t, p, kafka.Config{Policy: quick(1), SkipExisting: true}, func(ctx context.Context, _ *sarama.ConsumerMessage) error {
		if st, _ := redeliver.FromContext(ctx); st.Attempt() == 1 {
			return errDeclined
		}
		return nil
	})
	ids := putOnPartitions(t, p, "new-", 4)
	ev.awaitEnds(t, ids...)
	wantOnlyAttempted(t, ev, ids...)
}
