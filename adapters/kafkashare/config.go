package kafkashare

import (
	"cmp"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight = rules.DefaultMaxInFlight
	DefaultClients     = 4

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
	// Policy applies to every topic that Topics does not name. OrderThroughRetries and OrderBlocking
	// are refused: a share group keeps no order. Default: the zero Policy, three retries after 1, 2
	// and 4 s plus jitter.
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
	// their contexts are cancelled, and their messages come back. It is at most 40 s, because it must
	// be shorter than the session timeout of the retry group (franz-go's default 45 s). Otherwise
	// others run its retries, too. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning refuses to start when one of redeliver's topics is missing, instead of creating
	// it. Plan lists them. The same holds for settings of the share group that are not set. Default:
	// they are created.
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
	c.common().SetDefaults()
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	return c
}

// common returns the fields that other adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Topics,
		MaxInFlight: &c.MaxInFlight, MaxRetriesInFlight: &c.MaxRetriesInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// policy returns the policy of a topic, with its defaults.
func (c *Config) policy(topic string) redeliver.Policy {
	p, _ := c.common().PolicyOf(topic)
	return p
}

// retryGroup is the consumer group that reads retries.
func (c *Config) retryGroup() string { return c.Group + wirename.ShareRetryGroup }

// members is the number of members of the share group for each subscription.
func (c *Config) members() int { return min(c.Clients, c.MaxInFlight) }

// pollSize is the number of messages that one member polls at once.
func (c *Config) pollSize() int { return (c.MaxInFlight + c.members() - 1) / c.members() }

// check adds all problems that do not depend on the cluster. c has its defaults.
func (c *Config) check(ps *check.Problems) {
	rules.RequireBrokers(ps, "Brokers", c.Brokers, "host:port")
	kafkaname.CheckGroup(ps, "Group", c.Group)
	kafkaname.CheckGroup(ps, "Group + "+wirename.ShareRetryGroup, c.retryGroup())
	c.common().Check(ps, rules.Limits{Orders: []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone}, CheckName: kafkaname.CheckTopic})
	ps.CheckCount("Clients", c.Clients, 1, maxClients)
	if c.DrainTimeout > maxDrainTimeout {
		ps.Add("DrainTimeout", c.DrainTimeout, fmt.Sprintf("must be at most %s, or the group removes the member while it drains, and others run its retries, too", maxDrainTimeout))
	}
}
