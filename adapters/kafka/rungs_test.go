package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// rungs are the topics of the levels above the default policy's.
var rungs = []string{"retry.15s", "retry.1m", "retry.10m", "retry.1h"}

// committed returns the ids that any of the members has committed.
func committed(members ...*events) map[string]bool {
	ids := make(map[string]bool)
	for _, ev := range members {
		for _, c := range all[redeliver.Committed](ev) {
			ids[c.State.ID] = true
		}
	}
	return ids
}

func TestOnKafkaTheDefaultPolicyStartsWithFiveTopics(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := p.provision(t, redeliver.Policy{})
	if got, want := p.topics(t), []string{"dlq", "retry", "retry.1s", "retry.2s", "retry.4s"}; !slices.Equal(got, want) {
		t.Errorf("a start creates %v, want %v", got, want)
	}
	c, _ := openClient(t, cfg)
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	var later []string
	for _, topic := range plan.Places {
		if topic.OnDemand {
			later = append(later, strings.TrimPrefix(topic.Name, p.ours("")))
			if topic.Exists || topic.Settings["retention.ms"] != "-1" || topic.Partitions != 4 {
				t.Errorf("planned is %+v", topic)
			}
		}
	}
	if !slices.Equal(later, rungs) {
		t.Errorf("created later are %v, want %v", later, rungs)
	}
	if text := plan.String(); !strings.Contains(text, "is created when a wait needs it") {
		t.Errorf("the plan does not say what is created later:\n%s", text)
	}
}

// Two members need a rung at the same time. Both may create it. Messages that one member wrote are read after it has
// left.
func TestOnKafkaTheFirstLongWaitCreatesAllRungs(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			join := func() (*mq.Client, *events) {
				cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Sarama: sarama.NewConfig()}
				cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
				c, ev := openClient(t, cfg)
				route(t, c, p.topic, failFirst(10*time.Minute+30*time.Second))
				ev.awaitJoined(t, 1)
				return c, ev
			}
			c1, ev1 := join()
			_, ev2 := join()
			recs, ids := orders(p.topic, 40)
			write(t, p.addrs, recs...)
			eventually(t, "all messages wait on the rung", func() bool {
				return slices.Contains(p.topics(t), "retry.10m") && count(t, p.addrs, p.ours("retry.10m")) >= int64(len(ids))
			})
			for _, rung := range rungs {
				if !slices.Contains(p.topics(t), rung) {
					t.Errorf("%s was not created: the next longer wait makes the group rejoin again", rung)
				}
			}
			plan, err := c1.Plan(t.Context(), p.topic)
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range plan.Places {
				if !topic.Exists || topic.Partitions != 4 {
					t.Errorf("there is %+v", topic)
				}
			}
			for _, note := range plan.Notes {
				t.Errorf("notes: %s", note)
			}
			direct := count(t, p.addrs, p.ours("retry.4s"))
			more, moreIDs := orders("later-"+p.topic, 20)
			for _, rec := range more {
				rec.Topic = p.topic
			}
			write(t, p.addrs, more...)
			eventually(t, "the next ones wait there, too", func() bool {
				return count(t, p.addrs, p.ours("retry.10m")) >= int64(len(ids)+len(moreIDs))
			})
			if n := count(t, p.addrs, p.ours("retry.4s")) - direct; n > 0 && name == "range" {
				t.Errorf("%d messages took hops although the rung was there", n)
			}
			if err := c1.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			sendCommand(t, p.waiting(t), release())
			eventually(t, "all messages end", func() bool {
				ended := committed(ev1, ev2)
				return !slices.ContainsFunc(slices.Concat(ids, moreIDs), func(id string) bool { return !ended[id] })
			})
			for _, ev := range []*events{ev1, ev2} {
				ev.noFindings(t)
				if dead := all[redeliver.DeadLettered](ev); len(dead) > 0 {
					t.Errorf("%d are dead, for example %+v", len(dead), dead[0])
				}
			}
		})
	}
}

func TestTheGroupRejoinsOnceForAllRungs(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	var members []*events
	for range 3 {
		c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing"})
		route(t, c, "orders", failFirst(2*time.Minute))
		ev.awaitJoined(t, 1)
		members = append(members, ev)
	}
	// The first member has seen three others join, the last one only itself.
	for i, ev := range members {
		ev.awaitJoined(t, len(members)-i)
	}
	write(t, addrs, order("orders", "a"))
	for i, ev := range members {
		ev.awaitJoined(t, len(members)-i+1)
	}
	write(t, addrs, order("orders", "b"))
	eventually(t, "both messages wait on the rung", func() bool { return count(t, addrs, "orders.billing.retry.1m") >= 2 })
	for i, ev := range members {
		if n := ev.count(isChange(redeliver.ChangeAssigned)); n != len(members)-i+1 {
			t.Errorf("member %d joined %d times, want %d", i, n, len(members)-i+1)
		}
	}
}

// A service's own loop works like Subscribe: the session ends, and Topics has the rungs.
func TestOnKafkaWrapReadsRungs(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	ev, _ := wrap(t, p, kafka.Config{}, func(ctx context.Context, _ *sarama.ConsumerMessage) error {
		if st, _ := redeliver.FromContext(ctx); st.Attempts == 0 {
			return redeliver.RetryAfter(errDeclined, 2*time.Minute)
		}
		return nil
	})
	write(t, p.addrs, order(p.topic, "a"))
	eventually(t, "the message waits on the rung", func() bool {
		return slices.Contains(p.topics(t), "retry.1m") && count(t, p.addrs, p.ours("retry.1m")) > 0
	})
	sendCommand(t, p.waiting(t), release())
	ev.awaitEnds(t, "a")
	ev.noFindings(t)
}

// If a broker refuses to create rungs, a message hops over the existing levels until an administrator has created them.
func TestAMessageWaitsIfNoRungCanBeCreated(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cfg := p.provision(t, redeliver.Policy{})
	var allowed atomic.Bool
	cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if allowed.Load() {
			return nil, nil, false
		}
		return refuseCreateTopics(req, kerr.TopicAuthorizationFailed), nil, true
	})
	c, ev := openClient(t, cfg)
	kafka.SweepEvery(c, 100*time.Millisecond)
	route(t, c, "orders", failFirst(61*time.Second))
	put(t, p.addrs, order("orders", "a"))
	reported, _ := ev.await(t, 1, isChangeWithError("a topic is missing", "creating topic orders.billing.retry.15s"))[0].(redeliver.SubscriptionChanged)
	if !strings.Contains(reported.Err.Error(), "NoProvisioning") {
		t.Errorf("reported %+v", reported)
	}
	scheduled, _ := ev.await(t, 1, is[redeliver.RetryScheduled])[0].(redeliver.RetryScheduled)
	if scheduled.Where != p.ours("retry.4s") {
		t.Errorf("it waits on %s", scheduled.Where)
	}
	eventually(t, "the message has hopped", func() bool { return count(t, p.addrs, p.ours("retry.4s")) >= 2 })
	allowed.Store(true)
	makeTopics(t, p, map[string]string{"retention.ms": "-1", "max.message.bytes": "3000000"}, p.ours("retry.15s"))
	eventually(t, "the message waits on the rung", func() bool { return count(t, p.addrs, p.ours("retry.15s")) >= 1 })
	sendCommand(t, p.waiting(t), release())
	ev.awaitEnds(t, "a")
}

// A running member reads rungs that another process created and wrote to, because that process may have died before it
// joined.
func TestOnKafkaARungOfAnotherProcessIsRead(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group})
	kafka.SweepEvery(c, 100*time.Millisecond)
	route(t, c, p.topic, failFirst(0))
	ev.awaitJoined(t, 1)
	makeTopics(t, p, map[string]string{"retention.ms": "-1", "max.message.bytes": "3000000"}, p.ours("retry.1m"))
	put(t, p.addrs, leftOnLevel(p, time.Minute, "k", "left", 1, 1, 0, time.Now()))
	ev.awaitEnds(t, "left")
}

// A newer version has created rungs with other settings, and is rolled back.
func TestOnKafkaRungsOfANewerVersionRefuseNoStart(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	adm := kadm.NewClient(independent(t, p.addrs))
	small := "1200"
	kafkatest.MakeTopic(t, adm, 12, map[string]*string{"max.message.bytes": &small}, p.ours("retry.1m"))
	makeTopics(t, p, map[string]string{"retention.ms": "-1"}, p.ours("retry.7m"))
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, MaxPartitions: 36}) // as many as the plan has
	plan, err := c.Plan(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(plan.Notes, func(note string) bool { return strings.Contains(note, "retry.1m max.message.bytes is 1200") }) {
		t.Errorf("the plan does not mention it: %q", plan.Notes)
	}
	put(t, p.addrs, leftOnLevel(p, time.Minute, "k", "left", 1, 1, 0, time.Now()), leftOnLevel(p, 7*time.Minute, "k", "old", 2, 1, 0, time.Now()))
	route(t, c, p.topic, failFirst(70*time.Second))
	ev.awaitEnds(t, "left", "old")
	before := count(t, p.addrs, p.ours("retry.1m"))
	put(t, p.addrs, order(p.topic, "new"))
	scheduled, _ := ev.await(t, 1, is[redeliver.RetryScheduled])[0].(redeliver.RetryScheduled)
	if scheduled.Where != p.ours("retry.4s") || count(t, p.addrs, p.ours("retry.1m")) != before {
		t.Errorf("it was written to %s, and %d records to the rung that cannot hold it", scheduled.Where, count(t, p.addrs, p.ours("retry.1m"))-before)
	}
	// A policy without these levels reads them, too.
	older, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group + "-2", Policy: quick(1)})
	second := fixture{addrs: p.addrs, topic: p.topic, group: p.group + "-2", real: p.real}
	makeTopics(t, second, map[string]string{"retention.ms": "-1"}, second.ours("retry.1m"))
	put(t, p.addrs, leftOnLevel(second, time.Minute, "k", "left", 1, 1, 0, time.Now()))
	route(t, older, p.topic, failFirst(0))
	ev.awaitEnds(t, "left")
}

// The loss of its messages is reported.
func TestOnKafkaADeletedRungIsCreatedAgain(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Sarama: fastMetadataConfig()})
	kafka.SweepEvery(c, 100*time.Millisecond)
	route(t, c, p.topic, failFirst(2*time.Minute))
	put(t, p.addrs, order(p.topic, "a"))
	rung := p.ours("retry.1m")
	eventually(t, "a message waits on the rung", func() bool {
		return slices.Contains(p.topics(t), "retry.1m") && count(t, p.addrs, rung) > 0
	})
	kafkatest.DropTopic(t, kadm.NewClient(independent(t, p.addrs)), rung)
	ev.await(t, 1, lost(rung))
	put(t, p.addrs, order(p.topic, "b"))
	ev.await(t, 1, func(e redeliver.Event) bool {
		r, ok := e.(redeliver.RetryScheduled)
		return ok && r.State.ID == "b"
	})
	sendCommand(t, p.waiting(t), release())
	ev.awaitEnds(t, "b")
}

func TestOnKafkaNoProvisioningNeedsRungsAtStart(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := p.provision(t, redeliver.Policy{})
	cfg.NoProvisioning = true
	c, _ := openClient(t, cfg)
	_, err := c.Plan(t.Context(), p.topic)
	var missing *redeliver.ConfigError
	if !errors.As(err, &missing) || len(missing.Problems) != len(rungs) {
		t.Fatalf("refused with %v", err)
	}
	for i, rung := range rungs {
		if pr := missing.Problems[i]; pr.Field != "topic "+p.ours(rung) || pr.Value != "missing" || !strings.Contains(pr.Rule, "Create it with partitions=4, ") {
			t.Errorf("refused with %v", pr)
		}
	}
}

func TestOnKafkaChangedSettingsAreReported(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	kafka.SweepEvery(c, 50*time.Millisecond)
	route(t, c, p.topic, failFirst(0))
	ev.awaitJoined(t, 1)
	alterSetting(t, p, "retention.ms", "3600000", p.ours("retry"))
	ev.await(t, 1, isChangeWithError("a topic is unfit", "topic "+p.ours("retry")+" retention.ms is 3600000"))
	put(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
}
