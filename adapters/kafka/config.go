package kafka

import (
	"cmp"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight   = rules.DefaultMaxInFlight
	defaultMaxPartitions = 200
	defaultMaxWaiting    = 100_000
	defaultDialTimeout   = 10 * time.Second
)

// Config configures how a service takes part in a consumer group of Kafka with retries, delays and
// a DLQ. Brokers and Group are required.
type Config struct {
	// Brokers are the bootstrap brokers, "host:port". Required.
	Brokers []string
	// Group is the consumer group. Required.
	Group string
	// Policy applies to every topic that Topics does not name. Default: the zero Policy, three retries
	// after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once in addition. Retries have slots of their
	// own, so that neither starves the other. Default MaxInFlight.
	MaxRetriesInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second
	// in which at least half of the messages failed, a limit for first deliveries and retries together
	// is halved, down to MinInFlight. It grows back when messages succeed. Failures that are the
	// message's own fault (permanent, rejected, undecodable) do not count, but postponed messages do.
	// At most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight int
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. It must be shorter than the
	// rebalance timeout, Sarama.Consumer.Group.Rebalance.Timeout. When partitions move, handlers have
	// the rebalance timeout less 10 s, at least half of it: 50 s with sarama's default. The other
	// members wait for the longest one meanwhile. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. It bounds a Publish, and how long the client may
	// take to accept a message. redeliver waits for the answer to an accepted message, because the
	// client cannot take it back and it must not be written twice. If there is no answer within
	// SendTimeout, redeliver reports that (PublishFailed) and pauses the intake. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning refuses to start when one of redeliver's topics is missing, instead of creating
	// it. Plan lists them. Default: they are created.
	NoProvisioning bool
	// RetryPartitions is the number of partitions of each of redeliver's topics. Default: as many
	// as the origin, at most 8.
	RetryPartitions int
	// MaxPartitions bounds how many partitions of redeliver's topics one subscription may need.
	// More is refused. Levels of older policies do not count. Default 200.
	MaxPartitions int
	// MaxWaiting bounds how many messages of one Subscribe may wait on its levels at a time if its
	// Order is OrderThroughRetries. Their keys and offsets are in memory, about 140 bytes each. At the bound the
	// origin waits until there are fewer, while retries continue. Records that were already read
	// are not stopped, so each partition may have 4,096 plus MaxInFlight more. Default 100,000.
	MaxWaiting int
	// InstanceID makes the members static (group.instance.id): after a restart within the session
	// timeout a member gets its partitions back at once. It must be different in every process. The
	// topic is appended to it, and each topic can be subscribed to once. Default: none.
	InstanceID string
	// SkipExisting lets a new group skip the records that its topics have when it starts. It concerns
	// the first session of a group, once: partitions that are added later, and a topic that is deleted
	// and created again, are read from their beginning. A group that has committed offsets continues
	// from these. Default: a new group reads all records.
	SkipExisting bool
	// SpringHeaders adds the headers of Spring Kafka's DeadLetterPublishingRecoverer to dead
	// letters, for a Spring listener on the DLQ. They come after redeliver's own headers, and no
	// handler or replay sees them. A dead letter that would be too large for the DLQ is written
	// without them. Default: none.
	SpringHeaders bool
	// DLQ configures the DLQ. Default: it keeps its messages.
	DLQ deadletter.Config
	// Names are the names of redeliver's topics. Default: see Names.
	Names Names
	// Marshaler turns records into Watermill messages and back. Default: DefaultMarshaler.
	Marshaler Marshaler
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
	// Sarama is the client's configuration: TLS, SASL, version, client id, rebalance strategy and
	// everything else that has no field here. It is copied. redeliver replaces sarama's defaults by
	// its own, except Offsets.Initial. sarama's default there is Newest. With it, Subscribe refuses a
	// new group that would skip records, and says so: set Oldest, or SkipExisting. Values that you set
	// stay, and are refused if they cannot work. Exceptions are Metadata.Full (members and producers ask only for
	// their own topics), a Net.ReadTimeout that is shorter than a rebalance may take, and what redeliver's promises need, such as RequiredAcks. Default:
	// sarama.NewConfig() with Offsets.Initial Oldest.
	//
	// If you do not trust the producers, set sarama.MaxDecompressedBatchSize. It applies to the
	// whole process and is 0 by default, which means no bound: a record of 32 KB can unpack to 300
	// MB. A batch above the bound, or one that the client cannot decode, is reported
	// (ChangeNotRead). Until the batch is deleted or skipped, no partition that the same broker
	// leads is read. The command redeliver has a bound of 8 MiB.
	Sarama *sarama.Config
}

func (c Config) withDefaults() Config {
	c.common().SetDefaults()
	c.MaxPartitions = cmp.Or(c.MaxPartitions, defaultMaxPartitions)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, defaultMaxWaiting)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sarama == nil {
		c.Sarama = sarama.NewConfig()
		c.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	return c
}

// common returns the fields that other adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Topics, DLQ: &c.DLQ, NamesDLQ: c.Names.DLQ != nil,
		MaxInFlight: &c.MaxInFlight, MaxRetriesInFlight: &c.MaxRetriesInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// policy returns the policy of a topic, with its defaults.
func (c Config) policy(topic string) redeliver.Policy {
	p, _ := c.common().PolicyOf(topic)
	return p
}

// validate returns all problems at once. c has its defaults.
func (c Config) validate() error {
	var ps check.Problems
	rules.RequireBrokers(&ps, "Brokers", c.Brokers, "host:port")
	for i, b := range c.Brokers {
		checkBroker(&ps, fmt.Sprintf("Brokers[%d]", i), b)
	}
	c.check(&ps, orders)
	c.checkGroupConfig(&ps)
	c.checkPerKey(&ps)
	return ps.Err()
}

// orders are the values of a policy's Order.
var orders = []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone, redeliver.OrderBlocking, redeliver.OrderThroughRetries}

// check adds problems that do not depend on the cluster or the client's configuration.
func (c Config) check(ps *check.Problems, allowed []redeliver.Order) {
	kafkaname.CheckGroup(ps, "Group", c.Group)
	c.common().Check(ps, rules.Limits{Orders: allowed, CheckName: kafkaname.CheckTopic, MinRetention: time.Minute})
	ps.CheckCount("RetryPartitions", c.RetryPartitions, 0, 0)
	ps.CheckCount("MaxPartitions", c.MaxPartitions, 1, 0)
	ps.CheckCount("MaxWaiting", c.MaxWaiting, 1, 0)
}

// checkGroupConfig adds problems of the client's configuration for a member of the group.
func (c Config) checkGroupConfig(ps *check.Problems) {
	if rebalance := c.Sarama.Consumer.Group.Rebalance.Timeout; c.DrainTimeout >= rebalance {
		ps.Add("DrainTimeout", c.DrainTimeout, fmt.Sprintf("must be shorter than Sarama.Consumer.Group.Rebalance.Timeout, %s, or the group removes the member while it drains", rebalance))
	}
	checkSarama(ps, c.Sarama)
}
