package kafka_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/mq"
)

// A deploy is rolled back while members of the older policy run. They also run the messages that the newer policy left
// on its own levels. Those levels may be deleted later.
func TestOnKafkaRunningMembersDrainLevelsOfAnotherPolicy(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			addrs := p.addrs
			join := func() (*mq.Client, *events) {
				cfg := kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(1), Sarama: sarama.NewConfig()}
				cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
				c, ev := openClient(t, cfg)
				kafka.SweepEvery(c, 50*time.Millisecond)
				route(t, c, p.topic, failFirst(0))
				ev.awaitJoined(t, 1)
				return c, ev
			}
			_, ev := join()
			topic := p.ours("retry.300ms")
			newer, _ := openClient(t, kafka.Config{Brokers: addrs, Group: p.group, Policy: redeliver.Policy{Levels: []time.Duration{300 * time.Millisecond}}})
			if err := newer.Subscriber().SubscribeInitialize(p.topic); err != nil {
				t.Fatal(err)
			}
			due := time.Now().Add(300 * time.Millisecond)
			var ids []string
			for i := range 20 {
				id := fmt.Sprint("left ", i)
				ids = append(ids, id)
				put(t, addrs, ours(topic, id, redeliver.State{
					ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: due, Policy: "the newer one",
					Source: redeliver.Source{Known: true, Partition: 0, Offset: int64(i)},
				}))
			}
			ev.awaitEnds(t, ids...)
			ev.noFindings(t)
			for _, a := range all[redeliver.Attempted](ev) {
				if a.Start.Before(due.Truncate(time.Millisecond)) {
					t.Errorf("%s ran %s early", a.State.ID, due.Sub(a.Start))
				}
			}
			// Nobody can join a group with a deleted topic.
			if _, err := kadm.NewClient(independent(t, addrs)).DeleteTopics(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			_, ev2 := join()
			recs, more := orders(p.topic, 40)
			write(t, addrs, recs...)
			eventually(t, "both members together handle what comes after", func() bool {
				done := make(map[string]bool)
				for _, ev := range []*events{ev, ev2} {
					for _, c := range all[redeliver.Committed](ev) {
						done[c.State.ID] = true
					}
				}
				for _, id := range more {
					if !done[id] {
						return false
					}
				}
				return true
			})
		})
	}
}

func TestALevelDeletedDuringAStartIsNoProblem(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	old, admin := p.ours("retry.300ms"), kadm.NewClient(independent(t, p.addrs))
	makeTopics(t, p, map[string]string{"retention.ms": "-1", "max.message.bytes": "3000000"}, old)
	cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		m, _ := req.(*kmsg.DescribeConfigsRequest)
		if !slices.ContainsFunc(m.Resources, func(r kmsg.DescribeConfigsRequestResource) bool { return r.ResourceName == old }) {
			cluster.KeepControl()
			return nil, nil, false
		}
		cluster.SleepControl(func() {
			if _, err := admin.DeleteTopics(t.Context(), old); err != nil {
				t.Error(err)
			}
		})
		return nil, nil, false
	})
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	if _, err := c.Plan(t.Context(), p.topic); err != nil {
		t.Error(err)
	}
	if topics, err := admin.ListTopics(t.Context()); err != nil || topics.Has(old) {
		t.Errorf("%s is still there: %v", old, err)
	}
}
