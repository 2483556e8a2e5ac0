package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

const control = "orders.billing.control"

func notRead(e redeliver.Event) bool {
	c, ok := e.(redeliver.SubscriptionChanged)
	return ok && c.Change == "commands are not read" && c.Err != nil
}

func TestTheControlTopicIsCompactedAndHasOnePartition(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(independent(t, addrs))
	there, err := adm.ListTopics(t.Context(), control)
	if err != nil || len(there[control].Partitions) != 1 {
		t.Errorf("%v, %v", there, err)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), control)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := configs.On(control, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "600000", "segment.bytes": "16777216", "unclean.leader.election.enable": "false"}
	for _, e := range rc.Configs {
		if value, ok := want[e.Key]; ok && e.Value != nil && *e.Value == value {
			delete(want, e.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("it lacks %v", want)
	}
	if ev.count(notRead) > 0 {
		t.Error("it was told that commands are not read")
	}
}

// Without a control topic, or with one that will not do, everything else goes on, and
// who gives a command is told.
func TestWithoutAControlTopicAllElseGoesOn(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		before func(t *testing.T, c *kfake.Cluster, adm *kadm.Client)
		never  bool // NoProvisioning
		tells  bool
		says   string // to who gives a command
	}{
		"not provisioned": {func(t *testing.T, _ *kfake.Cluster, adm *kadm.Client) {
			if _, err := adm.DeleteTopic(t.Context(), control); err != nil {
				t.Fatal(err)
			}
		}, true, false, control + " does not exist"},
		"not allowed": {func(t *testing.T, c *kfake.Cluster, adm *kadm.Client) {
			if _, err := adm.DeleteTopic(t.Context(), control); err != nil {
				t.Fatal(err)
			}
			c.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				return makesNone(req, kerr.TopicAuthorizationFailed), nil, true
			})
		}, false, true, control + " does not exist"},
		"not compacted": {func(t *testing.T, _ *kfake.Cluster, adm *kadm.Client) {
			keeps := "delete"
			if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &keeps}}, control); err != nil {
				t.Fatal(err)
			}
		}, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			provision, _ := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
			if err := provision.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			at.before(t, cluster, kadm.NewClient(independent(t, addrs)))
			c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), NoProvisioning: at.never})
			route(t, c, "orders", failFirst(1))
			recs, ids := orders("orders", 10)
			write(t, addrs, recs...)
			ev.awaitEnds(t, ids...)
			if told := ev.count(notRead) > 0; told != at.tells {
				t.Errorf("told that commands are not read: %v", told)
			}
			w, err := c.Waiting(t.Context(), kafka.WaitingConfig{Topic: "orders"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if at.says == "" {
				return
			}
			everything := release(deadletter.Filter{})
			everything.Everything = true
			if _, err := w.Command(t.Context(), everything); err == nil || !strings.Contains(err.Error(), at.says) {
				t.Errorf("a command was answered with %v", err)
			}
			if levels, err := w.Levels(t.Context()); err != nil || len(levels) != 2 {
				t.Errorf("%v, %v", levels, err)
			}
		})
	}
}

// Where keys wait for their failures, nothing is released, and the consumers say so; what
// is cancelled goes to the DLQ when it is due, and what stands behind it goes on.
func TestWhereKeysWaitForTheirFailures(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	const wait = 2 * time.Second
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: waitsFor(wait)}
	cfg.Policy.Order = redeliver.PerKey
	provision, _ := open(t, cfg)
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	put(t, p.addrs, left(p, wait, "k", "k-0", 0, 1, wait, time.Now()), left(p, wait, "k", "k-1", 1, 0, wait, time.Now()))
	w := p.waiting(t)
	everything := release(deadletter.Filter{})
	everything.Everything = true
	released := give(t, w, everything)
	cancelled := give(t, w, cancel(deadletter.Filter{IDs: []string{"k-0"}}))
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.awaitEnds(t, "k-0", "k-1")
	for _, d := range all[redeliver.DeadLettered](ev) {
		if d.State.ID != "k-0" || d.State.Reason != redeliver.ReasonInvalidated {
			t.Errorf("%s is dead for %s", d.State.ID, d.State.Reason)
		}
	}
	for _, a := range all[redeliver.Attempted](ev) {
		if a.State.ID == "k-0" {
			t.Error("k-0 ran although it was cancelled")
		}
	}
	eventually(t, "the consumers say what they do not do", func() bool {
		got := progressOf(t, w, released.ID)
		return got.Released == 0 && len(got.Notes) == 1 && strings.Contains(got.Notes[0], "PerKey") && progressOf(t, w, cancelled.ID).Cancelled == 1
	})
}
