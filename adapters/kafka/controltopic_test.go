package kafka_test

import (
	"context"
	"slices"
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
	"github.com/redeliver/redeliver/mq"
)

const control = "orders.billing.control"

// isChangeWithError matches a change of the subscription whose error contains the text.
func isChangeWithError(change, text string) func(redeliver.Event) bool {
	return func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && string(c.Change) == change && c.Err != nil && strings.Contains(c.Err.Error(), text)
	}
}

var notRead = isChangeWithError("commands are not read", "")

// onFaultyKafka returns a provisioned fixture on an in-process Kafka, into which a test can inject faults.
func onFaultyKafka(t *testing.T, policy redeliver.Policy) (*kfake.Cluster, fixture, kafka.Config) {
	t.Helper()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	return cluster, p, p.provision(t, policy)
}

func TestOnKafkaTheFirstCommandCreatesTheControlTopic(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	p.provision(t, quick(1))
	if slices.Contains(p.topics(t), "control") {
		t.Error("it was created before the first command")
	}
	sendCommand(t, p.waiting(t), cancel(deadletter.Filter{}))
	adm, topic := kadm.NewClient(independent(t, p.addrs)), p.ours("control")
	existing, err := adm.ListTopics(t.Context(), topic)
	if err != nil || len(existing[topic].Partitions) != 1 {
		t.Errorf("%v, %v", existing, err)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := configs.On(topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"cleanup.policy": "compact", "min.compaction.lag.ms": "600000", "segment.bytes": "16777216", "unclean.leader.election.enable": "false",
		"message.timestamp.type": "LogAppendTime",
	}
	for _, e := range rc.Configs {
		if value, ok := want[e.Key]; ok && e.Value != nil && *e.Value == value {
			delete(want, e.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("it lacks %v", want)
	}
}

// Without a control topic messages run. If it cannot be created, the sender of a command gets an error.
func TestMessagesRunWithoutAControlTopic(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := onFaultyKafka(t, quick(1))
	cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refuseCreateTopics(req, kerr.TopicAuthorizationFailed), nil, true
	})
	c, ev := openClient(t, cfg)
	route(t, c, "orders", failFirst(1))
	recs, ids := orders("orders", 10)
	write(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	if n := ev.count(notRead); n > 0 {
		t.Errorf("reported %d times that commands are not read", n)
	}
	w := p.waiting(t)
	if _, err := w.SendCommand(t.Context(), release()); err == nil || !strings.Contains(err.Error(), "have it created with partitions=1") {
		t.Errorf("a command was answered with %v", err)
	}
	if levels, err := w.Levels(t.Context()); err != nil || len(levels) != 2 {
		t.Errorf("%v, %v", levels, err)
	}
	operator := cfg
	operator.NoProvisioning, operator.Group = true, "ann's"
	c, _ = openClient(t, operator)
	w, err := c.Operations().Waiting(t.Context(), mq.WaitingConfig{Topic: p.topic, Group: p.group})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if _, err := w.SendCommand(t.Context(), release()); err == nil || !strings.Contains(err.Error(), control+" is missing, and NoProvisioning is set: create it with 1 partition") {
		t.Errorf("a command was answered with %v", err)
	}
}

// A command is refused if the topic would not keep it, or if the broker's clock would not count.
func TestOnKafkaAnUnsuitableControlTopicIsRefused(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	p.provision(t, quick(1))
	w := p.waiting(t)
	sendCommand(t, w, cancel(deadletter.Filter{}))
	alterSetting(t, p, "cleanup.policy", "delete", p.ours("control"))
	alterSetting(t, p, "message.timestamp.type", "CreateTime", p.ours("control"))
	eventually(t, "both are refused", func() bool { // brokers learn of settings at different times
		_, err := w.SendCommand(t.Context(), cancel(deadletter.Filter{}))
		return err != nil && strings.Contains(err.Error(), "must be compact") && strings.Contains(err.Error(), "message.timestamp.type=LogAppendTime")
	})
	was := count(t, p.addrs, p.ours("control"))
	if _, err := w.SendCommand(t.Context(), release()); err == nil {
		t.Error("another command was accepted")
	}
	if n := count(t, p.addrs, p.ours("control")); n > was {
		t.Errorf("%d records were written", n-was)
	}
}

// While the control topic cannot be read the lanes continue, and later they carry out the commands.
func TestCommandsAreReadWhenTheControlTopicRecovers(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := onFaultyKafka(t, retryAfter(time.Hour))
	id := "order-0001"
	put(t, p.addrs, leftOnLevel(p, time.Hour, id, id, 1, 1, time.Hour, time.Now()), leftOnLevel(p, time.Hour, "due", "due", 2, 1, 0, time.Now()))
	sendCommand(t, p.waiting(t), release())
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: control, Err: kerr.UnknownServerError, Count: -1})
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	ev.awaitEnds(t, "due")
	ev.await(t, 1, notRead)
	fault.Remove()
	ev.awaitEnds(t, id)
}

func TestAskingForCommandsEndsWithItsContextWhileAnotherAsks(t *testing.T) {
	t.Parallel()
	cluster, p, _ := onFaultyKafka(t, quick(1))
	w := p.waiting(t)
	sendCommand(t, w, cancel(deadletter.Filter{}))
	sendCommand(t, p.waiting(t), cancel(deadletter.Filter{})) // which w has not read
	testEndsWhileAnotherReads(t, cluster, control, func(ctx context.Context) error {
		_, err := w.Commands(ctx)
		return err
	})
}

func TestOnKafkaTheFirstCommandReachesRunningMembers(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: retryAfter(time.Hour)})
	route(t, c, p.topic, failOnce)
	put(t, p.addrs, order(p.topic, "order-0001"))
	ev.await(t, 1, is[redeliver.RetryScheduled])
	sendCommand(t, p.waiting(t), release())
	ev.awaitEnds(t, "order-0001")
}

// With OrderThroughRetries a release is refused, and members ignore one that another program has written. A cancelled
// message goes to the DLQ when it is due, and the messages behind it run.
func TestOnKafkaPerKeyRefusesReleaseAndAppliesCancel(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	const wait = 4 * time.Second
	policy := retryAfter(wait)
	policy.Order = redeliver.OrderThroughRetries
	cfg := p.provision(t, policy)
	w := p.waiting(t)
	forged := release()
	forged.ID, forged.Created, forged.Expires = "forged", time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	began := time.Now().Truncate(time.Millisecond) // headers have milliseconds
	put(t, p.addrs, leftOnLevel(p, wait, "k", "key-0", 0, 1, wait, began), leftOnLevel(p, wait, "k", "key-1", 1, 0, wait, began))
	p.writeControl(t, "command/forged", forged)
	sendCommand(t, w, cancel(deadletter.Filter{IDs: []string{"key-0"}}))
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	ev.awaitJoined(t, 1)
	if _, err := w.SendCommand(t.Context(), release()); err == nil || !strings.Contains(err.Error(), "OrderThroughRetries") {
		t.Errorf("a release was answered with %v", err)
	}
	ev.awaitEnds(t, "key-0", "key-1")
	ev.await(t, 1, isChangeWithError("command ignored", "OrderThroughRetries"))
	for _, d := range all[redeliver.DeadLettered](ev) {
		if d.State.ID != "key-0" || d.State.Reason != redeliver.ReasonInvalidated {
			t.Errorf("%s is dead for %s", d.State.ID, d.State.Reason)
		}
	}
	for _, a := range all[redeliver.Attempted](ev) {
		if a.State.ID == "key-0" {
			t.Error("key-0 ran although it was canceled")
		}
		if due := began.Add(wait); a.Start.Before(due) {
			t.Errorf("%s ran %s before it was due", a.State.ID, due.Sub(a.Start))
		}
	}
}

// A member without the right to read a delay topic stays in the group and reads the others. Nothing else shows that the
// messages there wait.
func TestAPartitionWithoutReadPermissionIsReported(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := onFaultyKafka(t, retryAfter(time.Hour))
	level := kafka.DelayTopicName(p.topic, p.group, time.Hour)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: level, Err: kerr.TopicAuthorizationFailed, Count: -1})
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	reported, ok := ev.await(t, 1, isChangeWithError(string(redeliver.ChangeOperationFails), ""))[0].(redeliver.SubscriptionChanged)
	if !ok || reported.Detail != "Fetch on topic "+level || !strings.Contains(reported.Err.Error(), "grant Read on topic "+level) {
		t.Errorf("%+v", reported)
	}
}
