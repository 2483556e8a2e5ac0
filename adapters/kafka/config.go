package kafka

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight   = 100
	DefaultMaxPartitions = 200
	DefaultMaxParked     = 100_000
	DefaultDrainTimeout  = 10 * time.Second
	DefaultDialTimeout   = 10 * time.Second

	// maxOwnPartitions bounds the partitions of one topic of ours, where
	// Config.RetryPartitions does not say otherwise.
	maxOwnPartitions = 8
)

// Config says how a service takes part in a consumer group of Kafka with
// retries, delays and a DLQ. Brokers and Group are required.
type Config struct {
	// Brokers are the bootstrap brokers, "host:port". Required.
	Brokers []string
	// Group is the consumer group. Required.
	Group string
	// Policy is for every topic that Topics does not name. Default: the zero
	// Policy, three retries after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none of their own.
	Topics map[string]redeliver.Policy
	// MaxInFlight bounds how many first deliveries of one Subscribe run at
	// once. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once beside them: they
	// have slots of their own, so that neither starves the other. Default MaxInFlight.
	MaxRetriesInFlight int
	// MinInFlight lets what is in flight shrink while messages fail: MaxInFlight and
	// MaxRetriesInFlight are halved for every second in which half of them do, down to
	// this, first deliveries and retries together, and grow back when they succeed.
	// Failures that the message itself is to blame for (permanent, rejected,
	// undecodable) do not count, those that are postponed do. Default 0: nothing
	// shrinks. At most MaxInFlight.
	MinInFlight int
	// NackDelay is when a message runs again that was nacked without an error:
	// the publisher of a Router failed, say. It counts as an attempt. Default:
	// what the policy says of an error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers may finish when partitions move or
	// the subscriber closes; then their contexts are cancelled and their
	// messages stay unacked. It must be shorter than the rebalance timeout
	// (sarama's default 60 s). Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds a Publish, and how long the client may take to accept a message that is to be written. redeliver waits
	// for the answer to an accepted message, because the client cannot take it back and it must not be written twice. After
	// SendTimeout without an answer it reports that (PublishFailed) and pauses the intake. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning refuses to start when a topic of ours is missing, instead
	// of creating it. Plan lists them. Default: they are created.
	NoProvisioning bool
	// RetryPartitions is the number of partitions of each topic of ours.
	// Default: as many as the origin, at most 8.
	RetryPartitions int
	// MaxPartitions is the most partitions of ours that one subscription may
	// need without being refused; levels of older policies do not count. Default 200.
	MaxPartitions int
	// MaxParked bounds how many messages of one Subscribe may wait on its levels at a
	// time where its Order is PerKey: their keys and offsets are in memory, about
	// 140 bytes each. When there are so many, the origin waits until there are fewer;
	// the retries go on. Records that were read before are not stopped, so it may be 4,096 and MaxInFlight
	// for each partition more. Default 100,000.
	MaxParked int
	// InstanceID makes the members static (group.instance.id): after a restart
	// within the session timeout a member gets its partitions back at once. It
	// must be different in every process; the topic is appended, and each topic can be
	// subscribed to once. Default: none.
	InstanceID string
	// SpringHeaders adds the headers of Spring Kafka's DeadLetterPublishingRecoverer to dead
	// letters, for a Spring listener on the DLQ. They stand behind redeliver's own, and
	// neither a handler nor a replay sees them. A dead letter that is too large for the DLQ
	// with them is written without. Default: none.
	SpringHeaders bool
	// DLQ says how the DLQ is made. Default: it keeps its messages.
	DLQ deadletter.Config
	// Names says how our topics are called. Default: see Names.
	Names Names
	// Marshaler turns records into Watermill messages and back. Default:
	// DefaultMarshaler.
	Marshaler Marshaler
	// Sink receives the events. Default: NewSlogSink(nil).
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer redeliver.Tracer
	// Sarama is the client's configuration: TLS, SASL, version, client id,
	// rebalance strategy and all that is not named here. It is copied. What
	// still has sarama's default is set to what suits, but for Offsets.Initial:
	// sarama's is Newest, and a new group does not read what was written before
	// it; partitions that are added to an origin are read from their beginning all
	// the same. What you set stays, and is refused if it cannot work, but for
	// Metadata.Full: members and producers ask for their own topics alone.
	// Default: sarama.NewConfig() with Offsets.Initial Oldest.
	//
	// A program whose producers are not trusted sets sarama.MaxDecompressedBatchSize,
	// which is one for the process and 0, no bound, by default: a record of 32 KB can
	// unpack to 300 MB. A batch above the bound, and any that the client cannot decode,
	// is reported (ChangeNotRead); until it is deleted or passed over, no partition of
	// its broker is read. The command redeliver has a bound of 128 MiB.
	Sarama *sarama.Config
}

func (c Config) withDefaults() Config {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxRetriesInFlight = cmp.Or(c.MaxRetriesInFlight, c.MaxInFlight)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.SendTimeout = cmp.Or(c.SendTimeout, 30*time.Second)
	c.MaxPartitions = cmp.Or(c.MaxPartitions, DefaultMaxPartitions)
	c.MaxParked = cmp.Or(c.MaxParked, DefaultMaxParked)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	if c.Sarama == nil {
		c.Sarama = sarama.NewConfig()
		c.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	return c
}

// policy is the policy of a topic, with its defaults.
func (c Config) policy(topic string) redeliver.Policy {
	if p, ok := c.Topics[topic]; ok {
		return p.WithDefaults()
	}
	return c.Policy.WithDefaults()
}

// validate returns all problems at once. c has its defaults.
func (c Config) validate() error {
	var ps redeliver.Problems
	if len(c.Brokers) == 0 {
		ps.Add("Brokers", "empty", "it is required: host:port of at least one broker")
	}
	for i, b := range c.Brokers {
		checkBroker(&ps, fmt.Sprintf("Brokers[%d]", i), b)
	}
	c.check(&ps, orders)
	c.checkGroupConfig(&ps)
	c.checkPerKey(&ps)
	return ps.Err()
}

// orders is what a policy's Order may be.
var orders = []redeliver.Order{redeliver.KeyOrder, redeliver.Unordered, redeliver.Blocking, redeliver.PerKey}

// check notes what is wrong, whatever the cluster and the client's configuration are.
func (c Config) check(ps *redeliver.Problems, allowed []redeliver.Order) {
	checkGroup(ps, "Group", c.Group)
	ps.Policy("Policy", c.Policy)
	ps.Order("Policy", c.Policy, allowed...)
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		field := fmt.Sprintf("Topics[%q]", topic)
		checkTopic(ps, field, topic)
		ps.Policy(field, c.Topics[topic])
		ps.Order(field, c.Topics[topic], allowed...)
	}
	c.DLQ.Check(ps, time.Minute, 0)
	if c.DLQ.Discard && c.Names.DLQ != nil {
		ps.Add("Names.DLQ", "set", "must not be set where DLQ.Discard is: there is no DLQ")
	}
	ps.Count("MaxInFlight", c.MaxInFlight, 1, 0)
	ps.Count("MinInFlight", c.MinInFlight, 0, max(1, c.MaxInFlight))
	ps.Count("MaxRetriesInFlight", c.MaxRetriesInFlight, 1, 0)
	ps.Duration("NackDelay", c.NackDelay, 0, redeliver.MaxWait)
	ps.Duration("DrainTimeout", c.DrainTimeout, time.Nanosecond, 0)
	ps.Duration("SendTimeout", c.SendTimeout, time.Nanosecond, 0)
	ps.Count("RetryPartitions", c.RetryPartitions, 0, 0)
	ps.Count("MaxPartitions", c.MaxPartitions, 1, 0)
	ps.Count("MaxParked", c.MaxParked, 1, 0)
}

// checkGroupConfig notes what of the client's configuration a member of the group
// cannot have.
func (c Config) checkGroupConfig(ps *redeliver.Problems) {
	if rebalance := c.Sarama.Consumer.Group.Rebalance.Timeout; c.DrainTimeout >= rebalance {
		ps.Add("DrainTimeout", c.DrainTimeout, fmt.Sprintf("must be shorter than Sarama.Consumer.Group.Rebalance.Timeout, %s, or the member is thrown out while it drains", rebalance))
	}
	checkSarama(ps, c.Sarama)
}
