package kafka_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
)

// hangOn handles all messages but one, which takes until its context ends.
func hangOn(id string) kafka.Handler {
	return func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		if string(rec.Key) == id {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

func succeed(context.Context, *sarama.ConsumerMessage) error { return nil }

// slowConfig is a policy under which a message may take long, and a drain that does not wait for it.
func slowConfig() kafka.Config {
	cfg := kafka.Config{Policy: quick(1), DrainTimeout: 200 * time.Millisecond}
	cfg.Policy.Timeout = time.Hour
	return cfg
}

// wantOnlyRuns checks that the next member, which ends in order, runs only one message.
func wantOnlyRuns(t *testing.T, p fixture, id string) {
	t.Helper()
	ev, stop := consume(t, p, slowConfig(), succeed)
	ev.awaitEnds(t, id)
	eventually(t, "all are committed", func() bool { return !strings.Contains(committedMeta(t, p.addrs, 0), "settled=") })
	stop()
	if ran := ev.attempts(); len(ran) != 1 || ran[id] != 1 {
		t.Errorf("%d messages ran, want only %s once: the others were committed as settled", len(ran), id)
	}
}

// commitLog has the commits of orders/0 that a cluster accepted.
type commitLog struct {
	mu      sync.Mutex
	offsets []int64
	texts   []string
}

func recordCommits(cluster *kfake.Cluster) *commitLog {
	l := new(commitLog)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range topic.Partitions {
				if topic.Topic == "orders" && p.Partition == 0 && p.Metadata != nil {
					l.offsets, l.texts = append(l.offsets, p.Offset), append(l.texts, *p.Metadata)
				}
			}
		}
		return nil, nil, false
	})
	return l
}

// wantKept checks that what a commit lists as settled is listed, or below the offset, in every later commit.
func (l *commitLog) wantKept(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var before commitmeta.Runs
	for i, text := range l.texts {
		now := commitmeta.Parse(text).Settled
		for _, run := range before.From(l.offsets[i]) {
			for o := run.From; o < run.To; o++ {
				if !now.Contains(o) {
					t.Fatalf("offset %d was listed, and is not in the commit of %d with %q", o, l.offsets[i], text)
				}
			}
		}
		before = now
	}
}

// Each session reads only few records before it ends. Two rebalances within a second, as in a deploy, do that.
func TestAShortSessionKeepsWhatIsSettled(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	ids := fillPartitions(t, p.addrs, 1500, 0)
	ev, stop := consume(t, p, slowConfig(), hangOn(ids[0]))
	ev.awaitEnds(t, ids[1:]...)
	stop()
	commits := recordCommits(cluster)
	for range 3 {
		cfg := slowConfig()
		cfg.Brokers, cfg.Group, cfg.Sarama = p.addrs, p.group, sarama.NewConfig()
		cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
		cfg.Sarama.Consumer.Fetch.Default, cfg.Sarama.Consumer.Fetch.Max = 4096, 4096
		c, ev := openClient(t, cfg)
		began := make(chan struct{}, len(ids))
		route(t, c, p.topic, func(msg *message.Message) error {
			began <- struct{}{}
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		<-began
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(ev.attempts()); n > 1 {
			t.Errorf("%d messages ran", n)
		}
	}
	commits.wantKept(t)
	wantOnlyRuns(t, p, ids[0])
	commits.wantKept(t)
}

// A right that is missing for a moment erases nothing.
func TestRefusedCommitsKeepWhatIsSettled(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]*kerr.Error{"the coordinator loads": kerr.CoordinatorLoadInProgress, "the right is missing": kerr.GroupAuthorizationFailed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
			ids := fillPartitions(t, p.addrs, 500, 0)
			ev, stop := consume(t, p, slowConfig(), hangOn(ids[0]))
			ev.awaitEnds(t, ids[1:]...)
			stop()
			commits := recordCommits(cluster)
			refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: refusal, Count: 3})
			ev, stop = consume(t, p, slowConfig(), hangOn(ids[0]))
			if err := refused.Wait(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a commit says that the new owner works", func() bool { return strings.Contains(committedMeta(t, p.addrs, 0), "state=run") })
			stop()
			if n := len(ev.attempts()); n > 1 {
				t.Errorf("%d messages ran", n)
			}
			commits.wantKept(t)
			wantOnlyRuns(t, p, ids[0])
		})
	}
}

// refuseLongMetadata makes a cluster refuse metadata of more than a number of bytes.
func refuseLongMetadata(cluster *kfake.Cluster, size int) *kfake.FaultHandle {
	return cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.OffsetMetadataTooLarge, Count: -1,
		When: func(req kmsg.Request) bool {
			commit, ok := req.(*kmsg.OffsetCommitRequest)
			return ok && slices.ContainsFunc(commit.Topics, func(t kmsg.OffsetCommitRequestTopic) bool {
				return slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) bool {
					return p.Metadata != nil && len(*p.Metadata) > size
				})
			})
		},
	})
}

// A list of one run fits into 100 bytes.
func TestASmallMetadataLimitKeepsAShortList(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	refuseLongMetadata(cluster, 100)
	ids := fillPartitions(t, p.addrs, 2000, 0)
	ev, stop := consume(t, p, slowConfig(), hangOn(ids[0]))
	ev.awaitEnds(t, ids[1:]...)
	stop()
	wantOnlyRuns(t, p, ids[0])
}

// sarama does not say that a broker refuses metadata, and would commit nothing more.
func TestWrapNoticesThatMetadataAreRefused(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	refused := refuseLongMetadata(cluster, 70)
	ids := fillPartitions(t, p.addrs, 500, 0)
	release := make(chan struct{})
	ev, _ := wrap(t, p, slowConfig(), func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if string(rec.Key) == ids[5] {
			<-release
		}
		return nil
	})
	ev.await(t, 1, isChange("settled messages run again"))
	eventually(t, "what is below the slow message is committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 5 })
	close(release)
	ev.awaitEnds(t, ids...)
	eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 500 })
	if n := refused.Hits(); n == 0 || n > 20 {
		t.Errorf("%d commits were refused, want a few", n)
	}
}
