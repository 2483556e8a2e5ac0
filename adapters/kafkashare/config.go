package kafkashare

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight  = 100
	DefaultClients      = 4
	defaultDrainTimeout = 10 * time.Second
	defaultSendTimeout  = 30 * time.Second

	// maxDrainTimeout is below the session timeout of the retry group. A member that leaves sends no heartbeats while
	// it drains, and after that time others get its retries.
	maxDrainTimeout = 40 * time.Second

	maxClients       = 64
	maxOwnPartitions = 8 // of each of our topics
)

// Config configures how a service takes part in a share group of Kafka with retries, delays and a
// DLQ. Brokers and Group are required.
type Config struct {
	// Brokers are the bootstrap brokers, "host:port". Required.
	Brokers []string
	// Group is the share group. The consumer group Group + "-retry" reads retries, because Kafka does
	// not allow one id for both kinds of groups. Required.
	Group string
	// Policy applies to every topic that Topics does not name. OrderThroughRetries and OrderBlocking are refused: a
	// share group keeps no order. Default: the zero Policy, three retries after 1, 2 and 4 s plus
	// jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// Clients is the number of members of the share group for each Subscribe. A member polls again
	// only when all messages of its last poll are settled, so one slow message holds up the other
	// slots of its member. More members cost more requests. Default 4, at most 64.
	Clients int
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. A member polls an
	// equal part of it, rounded up. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once beside them. Default MaxInFlight.
	MaxRetriesInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every
	// second in which at least half of the messages failed, a limit for first deliveries and retries
	// together is halved, down to MinInFlight. At most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight int
	// NackDelay is how long a message waits after a nack without an error. The nack counts as an
	// attempt. Default: the policy's delay for an error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that their
	// contexts are cancelled, and their messages come back. It must be shorter than the session timeout
	// of the retry group (franz-go's default 45 s), or others run its retries, too. Default 10 s, at
	// most 40 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning neither creates topics nor sets the share group's configuration, and refuses to
	// start if a topic or a setting is missing. Default: Subscribe creates topics, and sets settings of
	// the group that are not set.
	NoProvisioning bool
	// Marshaler turns records into Watermill messages and back. Default: DefaultMarshaler.
	Marshaler Marshaler
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
	// Options are passed to every client of franz-go: TLS, SASL, the client id, a logger. redeliver
	// sets groups, topics and acks itself. Default: none.
	Options []kgo.Opt
}

func (c Config) withDefaults() Config {
	c.Clients = cmp.Or(c.Clients, DefaultClients)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxRetriesInFlight = cmp.Or(c.MaxRetriesInFlight, c.MaxInFlight)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultDrainTimeout)
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSendTimeout)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	return c
}

// policy returns the policy of a topic, with its defaults.
func (c *Config) policy(topic string) redeliver.Policy {
	if p, ok := c.Topics[topic]; ok {
		return p.WithDefaults()
	}
	return c.Policy.WithDefaults()
}

// retryGroup is the consumer group that reads retries.
func (c *Config) retryGroup() string { return c.Group + wirename.ShareRetryGroup }

// members is the number of members of the share group for each subscription.
func (c *Config) members() int { return min(c.Clients, c.MaxInFlight) }

// pollSize is the number of messages that one member polls at once.
func (c *Config) pollSize() int { return (c.MaxInFlight + c.members() - 1) / c.members() }

// check adds all problems that do not depend on the cluster. c has its defaults.
func (c *Config) check(ps *check.Problems) {
	if len(c.Brokers) == 0 {
		ps.Add("Brokers", "empty", "it is required: host:port of at least one broker")
	}
	kafkaname.CheckGroup(ps, "Group", c.Group)
	kafkaname.CheckGroup(ps, "Group + "+wirename.ShareRetryGroup, c.retryGroup())
	checkPolicy := func(field string, p redeliver.Policy) {
		ps.CheckPolicy(field, p)
		ps.CheckOrder(field, p, redeliver.OrderFirstAttempts, redeliver.OrderNone)
	}
	checkPolicy("Policy", c.Policy)
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		field := fmt.Sprintf("Topics[%q]", topic)
		kafkaname.CheckTopic(ps, field, topic)
		checkPolicy(field, c.Topics[topic])
	}
	ps.CheckCount("Clients", c.Clients, 1, maxClients)
	ps.CheckCount("MaxInFlight", c.MaxInFlight, 1, 0)
	ps.CheckCount("MaxRetriesInFlight", c.MaxRetriesInFlight, 1, 0)
	ps.CheckCount("MinInFlight", c.MinInFlight, 0, max(1, c.MaxInFlight))
	ps.CheckDuration("NackDelay", c.NackDelay, 0, redeliver.MaxWait)
	ps.CheckDuration("DrainTimeout", c.DrainTimeout, time.Nanosecond, 0)
	if c.DrainTimeout > maxDrainTimeout {
		ps.Add("DrainTimeout", c.DrainTimeout, fmt.Sprintf("must be at most %s, or the group removes the member while it drains, and others run its retries, too", maxDrainTimeout))
	}
	ps.CheckDuration("SendTimeout", c.SendTimeout, time.Nanosecond, redeliver.MaxWait)
}
