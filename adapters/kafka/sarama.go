package kafka

import (
	"fmt"
	"net"
	"reflect"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// checkSarama refuses settings under which messages would be lost or nothing
// would work.
func checkSarama(ps *redeliver.Problems, cfg *sarama.Config) {
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
	// As it will be used: what is left at sarama's default may not suit what the
	// caller set (a session shorter than the default heartbeat), and ours does.
	used := *cfg
	settings(&used)
	if err := used.Validate(); err != nil {
		ps.Add("Sarama", "invalid", err.Error())
	}
}

func checkBroker(ps *redeliver.Problems, field, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
		ps.Add(field, fmt.Sprintf("%q", redeliver.RedactAddress(addr)), "must be host:port; user and password belong into Sarama.Net.SASL")
	}
}

// settings are sarama's fields that redeliver sets where they still have
// sarama's default. What it sets whatever the caller said is not a matter of
// taste: see consumerConfig and producerConfig.
func settings(cfg *sarama.Config) {
	def := sarama.NewConfig()
	set(&cfg.ClientID, def.ClientID, "redeliver")
	set(&cfg.Net.DialTimeout, def.Net.DialTimeout, defaultDialTimeout)
	// A fetch holds the connection that heartbeats and commits need as well,
	// and delays what is resumed after a pause.
	set(&cfg.Consumer.MaxWaitTime, def.Consumer.MaxWaitTime, 50*time.Millisecond)
	set(&cfg.Consumer.Offsets.AutoCommit.Interval, def.Consumer.Offsets.AutoCommit.Interval, 200*time.Millisecond)
	set(&cfg.Consumer.Group.Heartbeat.Interval, def.Consumer.Group.Heartbeat.Interval, 500*time.Millisecond)
	// When the group's leader dies while the group joins, the others join again
	// after this pause, and send no heartbeats meanwhile: with sarama's 2 s a
	// short session is lost, and with any the whole group stands still. As many
	// tries more, so that it goes on for as long as sarama's 4 would.
	set(&cfg.Consumer.Group.Rebalance.Retry.Backoff, def.Consumer.Group.Rebalance.Retry.Backoff, 200*time.Millisecond)
	set(&cfg.Consumer.Group.Rebalance.Retry.Max, def.Consumer.Group.Rebalance.Retry.Max, 40)
	set(&cfg.Metadata.RefreshFrequency, def.Metadata.RefreshFrequency, refresh)
}

// refresh is how old what is known of the cluster may be. A claim whose partition had no
// leader when its session began waits for that to change, and asks nobody: sarama's ten
// minutes are how late its messages would be then.
const refresh = 30 * time.Second

func set[T any](field *T, def, ours T) {
	if reflect.DeepEqual(*field, def) {
		*field = ours
	}
}

// clientConfig is for metadata and administration.
func (c Config) clientConfig() *sarama.Config {
	cfg := *c.Sarama
	settings(&cfg)
	cfg.Metadata.AllowAutoTopicCreation = false
	return &cfg
}

// ownTopics is for who reads and writes: it asks for the topics alone that it uses. A cluster may have many thousands,
// and sarama would ask for all of them at each Subscribe and each refresh. Only the client for administration does, because
// sarama finds the controller that way.
func (c Config) ownTopics() *sarama.Config {
	cfg := c.clientConfig()
	cfg.Metadata.Full = false
	return cfg
}

// consumerConfig is for a member of the group that reads topic and its delay
// topics. They are read from their start when there is no valid offset, whatever
// the caller wants for the origin: see session.Setup for that.
func (c Config) consumerConfig(topic string) *sarama.Config {
	cfg := c.ownTopics()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Offsets.AutoCommit.Enable = false // a session has a committer
	cfg.Consumer.Group.ResetInvalidOffsets = true
	if c.perKey() {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{copartitioned{&c}}
	}
	cfg.Consumer.Group.Member.UserData = c.announced(topic, cfg)
	if c.InstanceID != "" {
		cfg.Consumer.Group.InstanceId = c.InstanceID + "-" + topic
		if !cfg.Version.IsAtLeast(sarama.V2_3_0_0) {
			cfg.Version = sarama.V2_3_0_0
		}
	}
	return cfg
}

// producerConfig is for writing: every record is confirmed by all in-sync
// replicas, and a repeated request does not write it twice.
func (c Config) producerConfig() *sarama.Config {
	cfg := c.ownTopics()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	cfg.Producer.Return.Errors = true
	cfg.Producer.Retry.Max = max(1, cfg.Producer.Retry.Max)
	inner := cfg.Producer.Partitioner
	cfg.Producer.Partitioner = func(topic string) sarama.Partitioner { return placer{inner(topic)} }
	return cfg
}

// placer puts our own records where they are told to go and leaves the others
// to the caller's partitioner.
type placer struct{ sarama.Partitioner }

// Partition implements [sarama.Partitioner].
func (p placer) Partition(msg *sarama.ProducerMessage, partitions int32) (int32, error) {
	if c, ok := msg.Metadata.(*confirm); ok && c.partition >= 0 {
		return c.partition % partitions, nil
	}
	return p.Partitioner.Partition(msg, partitions)
}

// MessageRequiresConsistency makes sarama count all partitions for our records,
// the ones without a leader too: a partition must not change with the weather.
func (p placer) MessageRequiresConsistency(msg *sarama.ProducerMessage) bool {
	if c, ok := msg.Metadata.(*confirm); ok && c.partition >= 0 {
		return true
	}
	if d, ok := p.Partitioner.(sarama.DynamicConsistencyPartitioner); ok {
		return d.MessageRequiresConsistency(msg)
	}
	return p.RequiresConsistency()
}
