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

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

func TestPerKeyIsRefusedWithIncompatibleSettings(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	policy := perKeyPolicy(time.Second)
	forever := "-1"
	if _, err := kadm.NewClient(independent(t, addrs)).CreateTopic(t.Context(), 2, 1, map[string]*string{
		"retention.ms": &forever, "cleanup.policy": func() *string { s := "delete"; return &s }(),
	}, "orders.unequal.retry.1s"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		field  string
		change func(*kafka.Config)
		text   string
	}{
		"a cooperative group": {"Sarama.Consumer.Group.Rebalance.GroupStrategies", func(c *kafka.Config) {
			c.Sarama = sarama.NewConfig()
			c.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		}, "one owner"},
		"the old field": {"Sarama.Consumer.Group.Rebalance.Strategy", func(c *kafka.Config) {
			c.Sarama = sarama.NewConfig()
			c.Sarama.Consumer.Group.Rebalance.Strategy = sarama.NewBalanceStrategyRoundRobin()
		}, "one owner"},
		"fewer partitions":       {"RetryPartitions", func(c *kafka.Config) { c.RetryPartitions = 2 }, "as orders has"},
		"a level with fewer":     {"topic orders.unequal.retry.1s partitions", func(c *kafka.Config) { c.Group = "unequal" }, "must be 4"},
		"no room for what waits": {"MaxWaiting", func(c *kafka.Config) { c.MaxWaiting = -1 }, ""},
		"the policy of one topic": {"Sarama.Consumer.Group.Rebalance.GroupStrategies", func(c *kafka.Config) {
			c.Policy, c.Topics = redeliver.Policy{}, map[string]redeliver.Policy{"refunds": c.Policy}
			c.Sarama = sarama.NewConfig()
			c.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
		}, "one owner"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := kafka.Config{Brokers: addrs, Group: "billing", Policy: policy, Sink: newEvents()}
			c.change(&cfg)
			client, err := kafka.Open(t.Context(), cfg)
			if err == nil {
				defer func() { _ = client.Close(context.Background()) }()
				_, err = client.Plan(t.Context(), "orders")
			}
			var bad *redeliver.ConfigError
			if !errors.As(err, &bad) || !slices.ContainsFunc(bad.Problems, func(p redeliver.Problem) bool {
				return p.Field == c.field && strings.Contains(p.Rule, c.text)
			}) {
				t.Errorf("%v does not name %s, %q", err, c.field, c.text)
			}
		})
	}
	client, group := ownGroup(t, addrs, "billing")
	_, err := kafka.Wrap(t.Context(), client, group, kafka.Config{Group: "billing", Policy: policy}, []string{"orders"},
		func(context.Context, *sarama.ConsumerMessage) error { return nil })
	var bad *redeliver.ConfigError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "Policy.Order") {
		t.Errorf("Wrap: %v", err)
	}
}

// The DLQ has as many partitions as without OrderThroughRetries.
func TestPerKeyHasAsManyPartitionsAsTheOrigin(t *testing.T) {
	t.Parallel()
	addrs := fake(t).ListenAddrs()
	if _, err := kadm.NewClient(independent(t, addrs)).CreateTopic(t.Context(), 12, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: perKeyPolicy(time.Second)})
	plan, err := c.Plan(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range plan.Places {
		want := int32(12)
		if topic.Kind == "dlq" {
			want = 8
		}
		if topic.Partitions != want {
			t.Errorf("%s has %d partitions, want %d", topic.Name, topic.Partitions, want)
		}
	}
	if !strings.Contains(plan.String(), "OrderThroughRetries") {
		t.Errorf("the plan does not mention the order:\n%s", plan)
	}
}

func TestPerKeyLevelsGetTheOriginsNewPartitions(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	cfg := withLongTimeouts(nil)
	cfg.Metadata.RefreshFrequency = 100 * time.Millisecond
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: perKeyPolicy(100 * time.Millisecond), Sarama: cfg})
	route(t, c, p.topic, failFirst(1))
	ev.awaitJoined(t, 1)
	addPartitions(t, p, 6)
	ids := putOnPartitions(t, p, "a-", 6)
	ev.awaitEnds(t, ids...)
}

// With NoProvisioning an origin with more partitions than its levels is not read: a message could not wait on a
// partition of the same owner. When the numbers are equal, the group continues.
func TestPerKeyPausesWhileTheLevelsHaveFewerPartitions(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: perKeyPolicy(100 * time.Millisecond)})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	sc := withLongTimeouts(nil)
	sc.Metadata.RefreshFrequency = 100 * time.Millisecond
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: perKeyPolicy(100 * time.Millisecond), NoProvisioning: true, Sarama: sc})
	route(t, c, "orders", failFirst(1))
	ev.awaitJoined(t, 1)
	adm := kadm.NewClient(independent(t, addrs))
	if _, err := adm.UpdatePartitions(t.Context(), 6, "orders"); err != nil {
		t.Fatal(err)
	}
	refused := ev.await(t, 1, isChange(redeliver.ChangeDisconnected))[0].(redeliver.SubscriptionChanged)
	if text := refused.Err.Error(); !strings.Contains(text, "has 4 partitions and orders has 6") {
		t.Errorf("%q does not say what is wrong", text)
	}
	rec := order("orders", "a")
	rec.Partition = 5
	put(t, addrs, rec)
	if n := len(all[redeliver.Attempted](ev)); n > 0 {
		t.Errorf("%d attempts were made", n)
	}
	if _, err := adm.UpdatePartitions(t.Context(), 6, "orders.billing.retry", "orders.billing.retry.100ms"); err != nil {
		t.Fatal(err)
	}
	ev.awaitEnds(t, "a")
}

// An origin that was created again may have fewer partitions than before, and messages wait on its levels. Partitions
// cannot be removed, so the refusal says how the levels run empty. Each of its steps must work.
func TestOnKafkaPerKeyRefusesLevelsWithMorePartitionsAndSaysHowToLoseThem(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	adm := kadm.NewClient(independent(t, p.addrs))
	level := p.ours("retry.100ms")
	forever := "-1"
	size := "3000000"
	kafkatest.MakeTopic(t, adm, 6, map[string]*string{"retention.ms": &forever, "max.message.bytes": &size}, level)
	put(t, p.addrs, leftOnLevel(p, 100*time.Millisecond, "ann", "waits", 7, 1, 0, time.Now()))
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: perKeyPolicy(100 * time.Millisecond)}
	c, _ := openClient(t, cfg)
	_, err := c.Subscriber().Subscribe(t.Context(), p.topic)
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "OrderFirstAttempts until the topic is empty") || strings.Contains(err.Error(), "Raise") {
		t.Fatal(err)
	}
	cfg.Policy.Order = redeliver.OrderFirstAttempts
	ordered, ev := openClient(t, cfg)
	route(t, ordered, p.topic, func(*message.Message) error { return nil })
	ev.awaitEnds(t, "waits")
	if err := ordered.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range p.topics(t) {
		kafkatest.DropTopic(t, adm, p.ours(suffix))
	}
	cfg.Policy.Order = redeliver.OrderThroughRetries
	c, ev = openClient(t, cfg)
	route(t, c, p.topic, func(*message.Message) error { return nil })
	put(t, p.addrs, order(p.topic, "new"))
	ev.awaitEnds(t, "new")
}
