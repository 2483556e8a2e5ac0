package kafka_test

import (
	"fmt"
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

func TestOnKafkaOnlyCommittedRecordsOfTransactionsAreRead(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	route(t, c, p.topic, failFirst(0))
	cl := independent(t, p.addrs, kgo.TransactionalID(p.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, tx := range []struct {
		id  string
		end kgo.TransactionEndTry
	}{{"committed", kgo.TryCommit}, {"aborted", kgo.TryAbort}, {"committed after it", kgo.TryCommit}} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), order(p.topic, tx.id)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), tx.end); err != nil {
			t.Fatal(err)
		}
	}
	ev.awaitEnds(t, "committed", "committed after it")
	if ran := ev.attempts(); len(ran) != 2 {
		t.Errorf("ran %v", ran)
	}
}

func TestOnKafkaAStaticMemberRestartsWithoutARebalance(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	adm := kadm.NewClient(independent(t, p.addrs))
	member := func() string {
		groups, err := adm.DescribeGroups(t.Context(), p.group)
		if err != nil || groups.Error() != nil {
			t.Fatal(err, groups.Error())
		}
		var found []string
		for _, m := range groups[p.group].Members {
			if m.InstanceID != nil {
				found = append(found, *m.InstanceID)
			}
		}
		return fmt.Sprint(groups[p.group].State, found)
	}
	want := fmt.Sprint("Stable", []string{"worker-1-" + p.topic})
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), InstanceID: "worker-1"}
	for _, id := range []string{"a", "b"} {
		c, ev := openClient(t, cfg)
		route(t, c, p.topic, failFirst(0))
		ev.awaitJoined(t, 1)
		put(t, p.addrs, order(p.topic, id))
		ev.awaitEnds(t, id)
		if ran := ev.attempts(); len(ran) != 1 {
			t.Errorf("ran %v, want only %s", ran, id)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := member(); got != want {
			t.Errorf("after %s the group is %s, want %s", id, got, want)
		}
	}
}

// Settled records are committed every 200 ms, or at the caller's interval, unless a message waits for a commit.
func TestCommitsFollowTheConfiguredInterval(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"by default": 0, "the caller's": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := fake(t, "orders").ListenAddrs()
			cfg := kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)}
			if every > 0 {
				cfg.Sarama = sarama.NewConfig()
				cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Sarama.Consumer.Offsets.AutoCommit.Interval = every
			}
			c, ev := openClient(t, cfg)
			route(t, c, "orders", func(*message.Message) error { return nil })
			put(t, addrs, order("orders", "a"))
			ev.awaitEnds(t, "a")
			if every == 0 {
				eventually(t, "it is committed", func() bool { return unacked(t, addrs, "billing", "orders", 0) == 1 })
				return
			}
			<-time.After(time.Second) // five times redeliver's own
			if off := unacked(t, addrs, "billing", "orders", 0); off != 0 {
				t.Errorf("committed up to %d before %s are over", off, every)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if off := unacked(t, addrs, "billing", "orders", 0); off != 1 {
				t.Errorf("committed up to %d by the end, want 1", off)
			}
		})
	}
}

func TestTopicsWithoutCreatePermissionAreNamed(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refuseCreateTopics(req, kerr.TopicAuthorizationFailed), nil, true
	})
	c, _ := openClient(t, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Policy: redeliver.Policy{Levels: []time.Duration{time.Second}}})
	_, err := c.Subscriber().Subscribe(t.Context(), "orders")
	if err == nil {
		t.Fatal("was not refused")
	}
	for _, part := range []string{"orders.billing.", "grant Create", "partitions=4", "retention.ms=-1", "NoProvisioning"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

func TestRepeatedFailuresToJoinAreReportedOnce(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	route(t, c, "orders", failFirst(0))
	ev.awaitJoined(t, 1)
	const tries = 6
	joins := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, Count: tries})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, Count: 1}) // and the session is over
	ev.awaitJoined(t, 2)
	if joins.Hits() != tries {
		t.Fatalf("the fault hit %d tries, want %d", joins.Hits(), tries)
	}
	var reported []string
	for _, c := range all[redeliver.SubscriptionChanged](ev) {
		reported = append(reported, string(c.Change))
		if c.Change == redeliver.ChangeDisconnected && !strings.Contains(fmt.Sprint(c.Err), "authorize") {
			t.Errorf("disconnected: %v", c.Err)
		}
	}
	if want := []string{"assigned", "disconnected", "assigned"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
	put(t, addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
}

// Two static members of a topic would have one group.instance.id, and the group would fence one of them for good.
func TestASecondStaticMemberOfATopicIsRefused(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), InstanceID: "worker-1"})
	first := c.Subscriber()
	if _, err := first.Subscribe(t.Context(), p.topic); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscriber().Subscribe(t.Context(), p.topic); err == nil {
		t.Error("a second static member of the topic was not refused")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscriber().Subscribe(t.Context(), p.topic); err != nil {
		t.Errorf("when the first has left, the next is refused: %v", err)
	}
}
