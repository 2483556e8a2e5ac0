package kafka_test

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/limits"
)

func TestABadConfigIsRefusedWithAllItsProblems(t *testing.T) {
	_, err := kafka.Open(t.Context(), kafka.Config{
		Brokers: []string{"nowhere", "host:99999"}, MaxInFlight: -1, DrainTimeout: time.Hour, RetryPartitions: -2,
		Policy: redeliver.Policy{Levels: []time.Duration{time.Minute, time.Second}},
		Topics: map[string]redeliver.Policy{"no spaces": {MaxRetries: -7}},
		Sarama: func() *sarama.Config {
			c := sarama.NewConfig()
			c.Consumer.Offsets.AutoCommit.Enable = false
			c.Producer.RequiredAcks = sarama.NoResponse
			c.Producer.Transaction.ID = "tx"
			c.Consumer.Group.InstanceId = "me"
			return c
		}(),
	})
	var bad *redeliver.ConfigError
	if !errors.As(err, &bad) {
		t.Fatalf("%v is not a ConfigError", err)
	}
	for _, field := range []string{
		"Brokers[0]", "Brokers[1]", "Group", "Policy.Levels[1]", `Topics["no spaces"]`, `Topics["no spaces"].MaxRetries`, "MaxInFlight",
		"RetryPartitions", "DrainTimeout", "Sarama.Consumer.Offsets.AutoCommit.Enable", "Sarama.Producer.RequiredAcks",
		"Sarama.Producer.Transaction.ID", "Sarama.Consumer.Group.InstanceId",
	} {
		n := 0
		for _, p := range bad.Problems {
			if p.Field == field && p.Rule != "" && p.Value != nil {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s has %d problems, want 1; all: %v", field, n, err)
		}
	}
}

func TestSingleBadFieldsAreNamed(t *testing.T) {
	for field, breakField := range map[string]func(*kafka.Config){
		"Brokers":             func(c *kafka.Config) { c.Brokers = nil },
		"Group":               func(c *kafka.Config) { c.Group = strings.Repeat("g", 256) },
		"MaxRetriesInFlight":  func(c *kafka.Config) { c.MaxRetriesInFlight = -1 },
		"NackDelay":           func(c *kafka.Config) { c.NackDelay = redeliver.MaxWait + 1 },
		"SendTimeout":         func(c *kafka.Config) { c.SendTimeout = -1 },
		"MaxPartitions":       func(c *kafka.Config) { c.MaxPartitions = -1 },
		"Policy.MaxRetries":   func(c *kafka.Config) { c.Policy.MaxRetries = -2 },
		"Sarama.Version":      func(c *kafka.Config) { c.Sarama = sarama.NewConfig(); c.Sarama.Version = sarama.V0_10_2_0 },
		"Sarama":              func(c *kafka.Config) { c.Sarama = sarama.NewConfig(); c.Sarama.ChannelBufferSize = -1 },
		"Policy.Backoff.Base": func(c *kafka.Config) { c.Policy.Backoff = redeliver.ExponentialBackoff{Base: -1} },
	} {
		t.Run(field, func(t *testing.T) {
			cfg := kafka.Config{Brokers: []string{"127.0.0.1:1"}, Group: "billing"}
			breakField(&cfg)
			_, err := kafka.Open(t.Context(), cfg)
			var bad *redeliver.ConfigError
			if !errors.As(err, &bad) || !slices.ContainsFunc(bad.Problems, func(p redeliver.Problem) bool { return p.Field == field }) {
				t.Errorf("%v does not name %s", err, field)
			}
		})
	}
}

func TestAnUnreachableBrokerIsAnErrorWithinTheDialTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"refuses": "127.0.0.1:1", "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			cfg := kafka.Config{Brokers: []string{addr}, Group: "billing", Sarama: sarama.NewConfig()}
			cfg.Sarama.Net.DialTimeout = time.Second
			cfg.Sarama.Net.ReadTimeout = time.Minute // the dial timeout must end it, not this one
			cfg.Sarama.Metadata.Retry.Max = 0
			begin := time.Now()
			_, err := kafka.Open(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one that names %s", err, addr)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestOurTopicsAreCreatedWithExplicitSettings(t *testing.T) {
	t.Parallel()
	addrs := fake(t).ListenAddrs()
	adm := kadm.NewClient(independent(t, addrs))
	isr, size := "1", "500000"
	if _, err := adm.CreateTopic(t.Context(), 12, 1, map[string]*string{"min.insync.replicas": &isr, "max.message.bytes": &size}, "orders"); err != nil {
		t.Fatal(err)
	}
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	topics := []string{"orders.billing.retry.100ms", "orders.billing.retry", "orders.billing.dlq"}
	existing, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := existing.Names(); len(got) != 4 {
		t.Errorf("topics %v, want orders and %v", got, topics)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "16777216",
		"min.insync.replicas": "1", "unclean.leader.election.enable": "false",
	}
	for _, topic := range topics {
		if n := len(existing[topic].Partitions); n != 8 {
			t.Errorf("%s has %d partitions, want 8", topic, n)
		}
		explicit := make(map[string]string)
		rc, err := configs.On(topic, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range rc.Configs {
			if e.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				explicit[e.Key] = *e.Value
			}
		}
		for k, v := range want {
			if explicit[k] != v {
				t.Errorf("%s: %s is %q, want %q; explicit are %v", topic, k, explicit[k], v, slices.Sorted(maps.Keys(explicit)))
			}
		}
		if n, err := strconv.Atoi(explicit["max.message.bytes"]); err != nil || n < 500_000+limits.MaxHeaderBytes {
			t.Errorf("%s: max.message.bytes is %q, want room for the origin's 500000 and our headers", topic, explicit["max.message.bytes"])
		}
	}
}

func TestTopicsThatCannotHoldThePolicyAreRefused(t *testing.T) {
	t.Parallel()
	const topic = "orders.billing.retry.100ms"
	for setting, value := range map[string]string{
		"cleanup.policy": "compact", "retention.ms": "3600000", "retention.bytes": "1000000", "max.message.bytes": "2000",
		"message.timestamp.type": "LogAppendTime", "segment.bytes": "1000000",
	} {
		t.Run(setting, func(t *testing.T) {
			addrs := fake(t, "orders").ListenAddrs()
			adm := kadm.NewClient(independent(t, addrs))
			never, size := "-1", "3000000"
			settings := map[string]*string{"retention.ms": &never, "retention.bytes": &never, "max.message.bytes": &size}
			settings[setting] = &value
			if _, err := adm.CreateTopic(t.Context(), 1, 1, settings, topic); err != nil {
				t.Fatal(err)
			}
			c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
			_, err := c.Subscriber().Subscribe(t.Context(), "orders")
			refused(t, err, "topic "+topic+" "+setting, value)
			_, err = c.Plan(t.Context(), "orders")
			refused(t, err, "topic "+topic+" "+setting, value)
			existing, err := adm.ListTopics(t.Context())
			if err != nil || existing.Has("orders.billing.dlq") {
				t.Errorf("topics were created before the others were checked (%v)", err)
			}
		})
	}
}

func refused(t *testing.T, err error, field, value string) {
	t.Helper()
	var bad *redeliver.ConfigError
	if !errors.As(err, &bad) {
		t.Fatalf("%v is not a ConfigError", err)
	}
	if len(bad.Problems) != 1 || bad.Problems[0].Field != field || bad.Problems[0].Value != value {
		t.Errorf("refused with %v, want only %s = %s", bad.Problems, field, value)
	}
}

func TestWithoutProvisioningMissingTopicsAreNamed(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), NoProvisioning: true})
	_, err := c.Subscriber().Subscribe(t.Context(), "orders")
	if err == nil {
		t.Fatal("was not refused")
	}
	for _, name := range []string{"orders.billing.retry.100ms", "orders.billing.retry", "orders.billing.dlq", "retention.ms=-1", "partitions=4"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if _, err := c.Subscriber().Subscribe(t.Context(), "missing"); err == nil || !strings.Contains(err.Error(), "topic missing does not exist") {
		t.Errorf("an origin that does not exist: %v", err)
	}
}

func TestManyPartitionsNeedMaxPartitions(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	cfg := kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), RetryPartitions: 70}
	c, _ := openClient(t, cfg)
	_, err := c.Subscriber().Subscribe(t.Context(), "orders")
	if err == nil || !strings.Contains(err.Error(), "MaxPartitions is 200") || !strings.Contains(err.Error(), "210 partitions") {
		t.Errorf("%v, want a refusal of 210 partitions", err)
	}
	cfg.MaxPartitions = 210
	c, _ = openClient(t, cfg)
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Errorf("with a larger MaxPartitions: %v", err)
	}
}
