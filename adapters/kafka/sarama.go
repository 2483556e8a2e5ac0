package kafka

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/diagnose"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/internal/check"
)

// checkSarama refuses settings that lose messages or cannot work.
func checkSarama(ps *check.Problems, cfg *sarama.Config) {
	if !cfg.Consumer.Offsets.AutoCommit.Enable {
		ps.Add("Sarama.Consumer.Offsets.AutoCommit.Enable", false, "must be true: redeliver marks settled records, and sarama commits only those")
	}
	if cfg.Producer.RequiredAcks == sarama.NoResponse {
		ps.Add("Sarama.Producer.RequiredAcks", "NoResponse", "must not be: a message is acked only when its next hop is confirmed")
	}
	if !cfg.Version.IsAtLeast(sarama.V0_11_0_0) {
		ps.Add("Sarama.Version", cfg.Version, "must be at least 0.11, the first with record headers")
	}
	if cfg.Producer.Transaction.ID != "" {
		ps.Add("Sarama.Producer.Transaction.ID", cfg.Producer.Transaction.ID, "must be empty: retries are not written in transactions")
	}
	if cfg.Consumer.Group.InstanceId != "" {
		ps.Add("Sarama.Consumer.Group.InstanceId", cfg.Consumer.Group.InstanceId, "must be empty: give Config.InstanceID, to which redeliver appends the topic")
	}
	// Validate the settings that will be used: sarama's default may not fit a value that the caller set (a session
	// shorter than the default heartbeat), but redeliver's does.
	used := *cfg
	applyDefaults(&used)
	if err := used.Validate(); err != nil {
		ps.Add("Sarama", "invalid", err.Error())
	}
}

func checkBroker(ps *check.Problems, field, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
		ps.Add(field, fmt.Sprintf("%q", redeliver.RedactAddress(addr)), "must be host:port; user and password belong into Sarama.Net.SASL")
	}
}

// applyDefaults replaces sarama's defaults by redeliver's. consumerConfig and producerConfig overwrite other settings
// even if the caller has set them.
func applyDefaults(cfg *sarama.Config) {
	def := sarama.NewConfig()
	setDefault(&cfg.ClientID, def.ClientID, "redeliver")
	setDefault(&cfg.Net.DialTimeout, def.Net.DialTimeout, defaultDialTimeout)
	// A fetch holds the connection that heartbeats and commits also need, and delays partitions that resume.
	setDefault(&cfg.Consumer.MaxWaitTime, def.Consumer.MaxWaitTime, 50*time.Millisecond)
	setDefault(&cfg.Consumer.Offsets.AutoCommit.Interval, def.Consumer.Offsets.AutoCommit.Interval, 200*time.Millisecond)
	setDefault(&cfg.Consumer.Group.Heartbeat.Interval, def.Consumer.Group.Heartbeat.Interval, 500*time.Millisecond)
	// If the group's leader dies while the group joins, the others join again after this pause, and send no heartbeats
	// meanwhile. sarama's pause of 2 s would lose short sessions, and stop the whole group. 40 tries take as long as
	// sarama's 4.
	setDefault(&cfg.Consumer.Group.Rebalance.Retry.Backoff, def.Consumer.Group.Rebalance.Retry.Backoff, 200*time.Millisecond)
	setDefault(&cfg.Consumer.Group.Rebalance.Retry.Max, def.Consumer.Group.Rebalance.Retry.Max, 40)
	setDefault(&cfg.Metadata.RefreshFrequency, def.Metadata.RefreshFrequency, metadataRefresh)
}

// metadataRefresh is how old cluster metadata may be. If a partition has no leader when its session begins, its claim
// waits for the next refresh. With sarama's ten minutes its messages would be that late.
const metadataRefresh = 30 * time.Second

func setDefault[T any](field *T, def, ours T) {
	if reflect.DeepEqual(*field, def) {
		*field = ours
	}
}

// clientConfig returns the settings for metadata and administration.
func (c Config) clientConfig() *sarama.Config {
	cfg := *c.Sarama
	applyDefaults(&cfg)
	cfg.Metadata.AllowAutoTopicCreation = false
	return &cfg
}

// ownTopicsConfig returns the settings of consumers and producers, which ask only for their own topics. sarama would
// ask for all at each Subscribe and each refresh, and a cluster may have many thousands. The client for administration
// needs all, because sarama finds the controller that way.
func (c Config) ownTopicsConfig() *sarama.Config {
	cfg := c.clientConfig()
	cfg.Metadata.Full = false
	return cfg
}

// The broker answers a join when all other members have drained, or when the rebalance timeout is over.
const (
	// joinMargin is how much longer than the rebalance timeout a member waits for an answer. Java's client has the same.
	joinMargin = 5 * time.Second
	// drainMargin is the part of the rebalance timeout that is left for the other steps of a rebalance: the member
	// notices it with a heartbeat, commits after the drain, and joins.
	drainMargin = 10 * time.Second
)

// rebalanceDrain returns how long attempts may go on after a rebalance has begun. The group waits for as long.
func (c Config) rebalanceDrain() time.Duration {
	timeout := c.Sarama.Consumer.Group.Rebalance.Timeout
	return max(c.DrainTimeout, timeout-min(drainMargin, timeout/2))
}

// wrappedDrain is rebalanceDrain for a group that the service has made: a member that joins waits only for the
// service's ReadTimeout, and would try again and again.
func (c Config) wrappedDrain() time.Duration {
	return max(c.DrainTimeout, min(c.rebalanceDrain(), c.Sarama.Net.ReadTimeout-drainMargin))
}

// consumerConfig returns the settings of a member that reads topic and its delay topics. It reads partitions without a
// valid offset from their start, whatever the caller wants for the origin: see Session.Setup of package reader.
func (c Config) consumerConfig(topic string) *sarama.Config {
	cfg := c.ownTopicsConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Offsets.AutoCommit.Enable = false // the session's committer does it
	cfg.Consumer.Group.ResetInvalidOffsets = true
	cfg.Net.ReadTimeout = max(cfg.Net.ReadTimeout, cfg.Consumer.Group.Rebalance.Timeout+joinMargin)
	if c.perKey() {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{c.perKeyStrategy()}
	}
	if data := diagnose.UserData(c.policy(topic)); data != nil {
		cfg.Consumer.Group.Member.UserData = data
	}
	if c.InstanceID != "" {
		cfg.Consumer.Group.InstanceId = c.InstanceID + "-" + topic
		if !cfg.Version.IsAtLeast(sarama.V2_3_0_0) {
			cfg.Version = sarama.V2_3_0_0
		}
	}
	return cfg
}

// producerConfig returns the settings of producers. All in-sync replicas confirm every record, and a repeated request
// does not write it twice.
func (c Config) producerConfig() *sarama.Config {
	cfg := c.ownTopicsConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	cfg.Producer.Return.Errors = true
	cfg.Producer.Retry.Max = max(1, cfg.Producer.Retry.Max)
	cfg.Producer.Partitioner = produce.Partitioner(cfg.Producer.Partitioner)
	return cfg
}

// perKey reports whether a policy of the group has OrderThroughRetries. All members of a group must use one strategy.
func (c Config) perKey() bool {
	if c.Policy.Order == redeliver.OrderThroughRetries {
		return true
	}
	for _, p := range c.Topics {
		if p.Order == redeliver.OrderThroughRetries {
			return true
		}
	}
	return false
}

// checkPerKey refuses settings that OrderThroughRetries does not allow.
func (c Config) checkPerKey(ps *check.Problems) {
	if !c.perKey() {
		return
	}
	rebalance := c.Sarama.Consumer.Group.Rebalance
	names := make([]string, 0, 1)
	for _, s := range rebalance.GroupStrategies {
		names = append(names, s.Name())
	}
	const rule = "must be left alone where an Order is OrderThroughRetries: a partition and the levels behind it must have one owner"
	if !slices.Equal(names, []string{sarama.RangeBalanceStrategyName}) { // sarama's default
		ps.Add("Sarama.Consumer.Group.Rebalance.GroupStrategies", names, rule)
	}
	if rebalance.Strategy != nil {
		ps.Add("Sarama.Consumer.Group.Rebalance.Strategy", rebalance.Strategy.Name(), rule)
	}
}

// perKeyStrategy returns the balance strategy of a group with OrderThroughRetries.
func (c Config) perKeyStrategy() sarama.BalanceStrategy {
	return perkey.BalanceStrategy{
		Group: c.Group, RetryTopic: c.names().RetryTopic,
		IsPerKey: func(topic string) bool { return c.policy(topic).Order == redeliver.OrderThroughRetries },
	}
}
