package sqs

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight       = rules.DefaultMaxInFlight
	DefaultPollers           = 4
	defaultVisibilityTimeout = 30 * time.Second
	defaultWaitTime          = 10 * time.Second
	defaultFIFOWaitTime      = 5 * time.Second // half of the default of DrainTimeout, because Close waits for these receives

	maxInFlight    = 100_000 // SQS lets a queue have 120,000 in flight
	maxPollers     = 100
	maxMessageSize = 1 << 20        // SQS's limit
	maxVisibility  = 12 * time.Hour // SQS's limit, counted from the receive
)

// Config configures how a service reads queues of Amazon SQS with retries, delays and a DLQ. The
// zero Config takes region and credentials from the usual AWS places.
type Config struct {
	// AWS is the client's configuration: region, credentials, HTTP client,
	// retryer. Default: config.LoadDefaultConfig, which reads the environment,
	// the profile, the role (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_SQS ...).
	AWS *aws.Config
	// Endpoint is the URL of another server, such as "http://127.0.0.1:9324" for ElasticMQ. Default:
	// the endpoint of AWS.
	Endpoint string
	// Policy applies to every queue that Queues does not name. Default: the zero Policy, three retries
	// after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Queues are the policies of single queues. The keys are the queues' names. Default: none.
	Queues map[string]redeliver.Policy
	// DLQ configures the DLQ. SQS keeps a dead letter for 14 days, the longest time that it allows.
	// Default: it keeps its messages.
	DLQ deadletter.Config
	// Names are the names of redeliver's queues. Default: see Names.
	Names Names
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
	// Pollers bounds the concurrent receives of one Subscribe. Each receives up to ten messages.
	// Default 4, at most 100.
	Pollers int
	// VisibilityTimeout is how long a message stays hidden from others after it was received. While a
	// process has the message, redeliver extends the time before half of it is over. So a message of a
	// killed process comes back after this time. In whole seconds, from 1 s to 12 h. Default 30 s.
	VisibilityTimeout time.Duration
	// WaitTime is the longest time that a receive waits for messages (a long poll). After a message
	// the next receive waits for 2 s, and each receive without one doubles that: an idle subscription
	// costs one request per WaitTime. A closing subscriber waits for receives of up to 2 s, and for
	// all of a FIFO queue. It cuts others short; a message that SQS gives to one of them is hidden
	// from all for up to 10 s. In whole seconds, at most 20 s. Default 10 s, on a FIFO queue 5 s.
	WaitTime time.Duration
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. That includes receives that the
	// subscriber waits for. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning refuses to start when one of redeliver's queues is missing, instead of creating
	// it. Plan lists them. Default: they are created.
	NoProvisioning bool
	// QueueAttributes are set when a topic's own queue is created. Default: a RedrivePolicy to
	// redeliver's DLQ after 1,000 receives, the most that SQS allows.
	QueueAttributes map[string]string
	// MaxMessageSize bounds the bytes of a message's body and attributes. Default: the queue's
	// MaximumMessageSize, or else 256 KiB.
	MaxMessageSize int
	// GroupID returns the MessageGroupId of a message that is published. On a standard queue it names
	// the tenant of a fair queue, and an id that SQS does not accept is left out. Default: on a FIFO
	// queue the name of the queue, so that all messages keep their order; on a standard queue none.
	GroupID func(topic string, msg *message.Message) string
	// DeduplicationID returns the MessageDeduplicationId of a message that is published to a FIFO
	// queue. Default: the message's UUID.
	DeduplicationID func(topic string, msg *message.Message) string
	// Marshaler turns SQS messages into Watermill messages and back. Default:
	// DefaultMarshaler.
	Marshaler Marshaler
	// StateKeys sign the state that redeliver keeps with its messages (HMAC-SHA256 over the state and
	// the digest of the body). The first key signs; a state signed with any of them is believed. Give
	// every process of the queue the same keys, the command and the console included.
	//
	// To change a key, first add the new one as the second key everywhere, then make it the first.
	// Remove the old one when no waiting message and no dead letter is signed with it. With keys, an
	// unsigned state is ignored: its message is a new one, even if it was waiting when the first key
	// came. At least 16 random bytes each. The state is in the attribute "redeliver". Without keys,
	// anyone who may send to the queue can forge a state: redeliver then limits a state's retries and
	// waits to Policy, and believes the rest. Default: none.
	StateKeys [][]byte
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
}

func (c Config) withDefaults() Config {
	c.common().SetDefaults()
	c.Pollers = cmp.Or(c.Pollers, DefaultPollers)
	c.VisibilityTimeout = cmp.Or(c.VisibilityTimeout, defaultVisibilityTimeout)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	return c
}

// forgetCredentials makes the next request ask for new credentials if err says that the present ones are not valid any
// more. The SDK keeps credentials that do not say when they end.
func (c *Config) forgetCredentials(err error) {
	if c.AWS == nil || !api.IsLoginRefused(err) {
		return
	}
	if cache, ok := c.AWS.Credentials.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
}

// maxAhead returns how many messages of a queue may run or wait: at most twice as many as may run.
func (c *Config) maxAhead() int {
	slots := c.MaxInFlight + c.MaxRetriesInFlight
	return slots + min(slots, api.MaxBatch*c.Pollers)
}

// common returns the fields that other adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Queues, OfQueues: true, DLQ: &c.DLQ, NamesDLQ: c.Names.DLQ != nil, StateKeys: c.StateKeys,
		MaxInFlight: &c.MaxInFlight, MaxRetriesInFlight: &c.MaxRetriesInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// policy returns a queue's policy with its defaults, and the policy's Config field.
func (c *Config) policy(queue string) (p redeliver.Policy, field string) {
	return c.common().PolicyOf(queue)
}

// validate returns all problems at once. c must have its defaults.
func (c *Config) validate() error {
	var ps check.Problems
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			ps.Add("Endpoint", redeliver.RedactAddress(c.Endpoint), "must be http://host:port or https, without a user: credentials belong into AWS")
		}
	}
	c.common().Check(&ps, rules.Limits{MaxInFlight: maxInFlight, CheckName: checkName, MinRetention: time.Minute, MaxRetention: api.MaxRetention})
	ps.CheckCount("Pollers", c.Pollers, 1, maxPollers)
	checkSeconds(&ps, "VisibilityTimeout", c.VisibilityTimeout, time.Second, maxVisibility)
	if c.WaitTime != 0 {
		checkSeconds(&ps, "WaitTime", c.WaitTime, time.Second, 20*time.Second)
	}
	if c.MaxMessageSize != 0 {
		ps.CheckCount("MaxMessageSize", c.MaxMessageSize, 1<<10, maxMessageSize)
	}
	return ps.Err()
}

func checkSeconds(ps *check.Problems, field string, value, minValue, maxValue time.Duration) {
	if value < minValue || value > maxValue || value%time.Second != 0 {
		ps.Add(field, value, fmt.Sprintf("must be whole seconds from %s to %s, or 0 for the default", minValue, maxValue))
	}
}
