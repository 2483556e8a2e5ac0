package sqs

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/redeliver/redeliver"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight       = 100
	DefaultPollers           = 4
	DefaultVisibilityTimeout = 30 * time.Second
	DefaultWaitTime          = 20 * time.Second // SQS's longest
	DefaultDrainTimeout      = 10 * time.Second
	DefaultSendTimeout       = 30 * time.Second
	// DefaultMaxMessageSize is MaxMessageSize where the queue does not say its own.
	DefaultMaxMessageSize = 256 << 10

	maxInFlight    = 100_000        // of 120,000 that SQS lets a queue have in flight
	maxPollers     = 100            //
	maxMessageSize = 1 << 20        // SQS's own
	maxVisibility  = 12 * time.Hour // SQS's own, from the receive on
)

// Config says how a service reads queues of Amazon SQS with retries, delays and a
// DLQ. The zero Config takes region and credentials from the usual AWS places.
type Config struct {
	// AWS is the client's configuration: region, credentials, HTTP client,
	// retryer. Default: config.LoadDefaultConfig, which reads the environment,
	// the profile, the role (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_SQS ...).
	AWS *aws.Config
	// Endpoint is another server than the region's, "http://127.0.0.1:9324" for
	// ElasticMQ. Default: what AWS says.
	Endpoint string
	// Policy is for every queue that Queues does not name. Default: the zero
	// Policy, three retries after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Queues are the policies of single queues, by the queue's name. Default:
	// none of their own.
	Queues map[string]redeliver.Policy
	// Names says how our queues are called. Default: see Names.
	Names Names
	// MaxInFlight bounds how many first deliveries of one Subscribe run at
	// once. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once beside them.
	// Default MaxInFlight.
	MaxRetriesInFlight int
	// Pollers is how many receives of one Subscribe are under way at once, of
	// up to ten messages each. Default 4, at most 100.
	Pollers int
	// VisibilityTimeout is how long a message stays hidden from others after it
	// was received; while it is in hand that is extended before half of it is
	// over. So long a message of a killed process takes to come back. In whole
	// seconds, from 1 s to 12 h. Default 30 s.
	VisibilityTimeout time.Duration
	// WaitTime is how long a receive waits for messages (a long poll). In whole
	// seconds, at most 20 s. Default 20 s.
	WaitTime time.Duration
	// NackDelay is when a message runs again that was nacked without an error.
	// It counts as an attempt. Default: what the policy says of an error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers may finish when the subscriber
	// closes; then their contexts are cancelled and their messages come back.
	// Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning refuses to start when a queue is missing, instead of
	// creating it. Plan lists them. Default: they are created.
	NoProvisioning bool
	// QueueAttributes are those of a topic's own queue where it is created.
	// Default: a RedrivePolicy to our DLQ after 1,000 receives, SQS's most.
	QueueAttributes map[string]string
	// MaxMessageSize is how many bytes body and attributes of a message may
	// have. Default: what the queue's MaximumMessageSize says, else 256 KiB.
	MaxMessageSize int
	// GroupID is the MessageGroupId of what is published to a FIFO queue.
	// Default: the queue's name, one group for all, which keeps the order of all.
	GroupID func(topic string, msg *message.Message) string
	// DeduplicationID is the MessageDeduplicationId of what is published to a
	// FIFO queue. Default: the message's UUID.
	DeduplicationID func(topic string, msg *message.Message) string
	// Marshaler turns SQS messages into Watermill messages and back. Default:
	// DefaultMarshaler.
	Marshaler Marshaler
	// Sink is told what happens. Default: NewSlogSink.
	Sink redeliver.Sink
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	long := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.MaxInFlight, DefaultMaxInFlight)
	def(&c.MaxRetriesInFlight, c.MaxInFlight)
	def(&c.Pollers, DefaultPollers)
	long(&c.VisibilityTimeout, DefaultVisibilityTimeout)
	long(&c.WaitTime, DefaultWaitTime)
	long(&c.DrainTimeout, DefaultDrainTimeout)
	long(&c.SendTimeout, DefaultSendTimeout)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	return c
}

// policy is the policy of a queue, with its defaults, and the field it stands in.
func (c *Config) policy(queue string) (p redeliver.Policy, field string) {
	if p, ok := c.Queues[queue]; ok {
		return p.WithDefaults(), fmt.Sprintf("Queues[%q]", queue)
	}
	return c.Policy.WithDefaults(), "Policy"
}

// validate returns all problems at once. c has its defaults.
func (c *Config) validate() error {
	var ps redeliver.Problems
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			ps.Add("Endpoint", redeliver.RedactAddress(c.Endpoint), "must be http://host:port or https, without a user: credentials belong into AWS")
		}
	}
	checkPolicy(&ps, "Policy", c.Policy)
	for _, queue := range slices.Sorted(maps.Keys(c.Queues)) {
		field := fmt.Sprintf("Queues[%q]", queue)
		checkName(&ps, field, queue)
		checkPolicy(&ps, field, c.Queues[queue])
	}
	between(&ps, "MaxInFlight", c.MaxInFlight, 1, maxInFlight)
	between(&ps, "MaxRetriesInFlight", c.MaxRetriesInFlight, 1, maxInFlight)
	between(&ps, "Pollers", c.Pollers, 1, maxPollers)
	seconds(&ps, "VisibilityTimeout", c.VisibilityTimeout, time.Second, maxVisibility)
	seconds(&ps, "WaitTime", c.WaitTime, time.Second, 20*time.Second)
	positive(&ps, "NackDelay", c.NackDelay, 0)
	if c.NackDelay > redeliver.MaxWait {
		ps.Add("NackDelay", c.NackDelay, fmt.Sprintf("must be at most %s, the longest wait", redeliver.MaxWait))
	}
	positive(&ps, "DrainTimeout", c.DrainTimeout, time.Nanosecond)
	positive(&ps, "SendTimeout", c.SendTimeout, time.Nanosecond)
	if c.MaxMessageSize != 0 {
		between(&ps, "MaxMessageSize", c.MaxMessageSize, 1<<10, maxMessageSize)
	}
	return ps.Err()
}

func checkPolicy(ps *redeliver.Problems, field string, p redeliver.Policy) {
	if bad, ok := errors.AsType[*redeliver.ConfigError](p.Validate(field)); ok {
		*ps = append(*ps, bad.Problems...)
	}
}

func positive(ps *redeliver.Problems, field string, value, least time.Duration) {
	if value < least {
		ps.Add(field, value, fmt.Sprintf("must be at least %v, or 0 for the default", least))
	}
}

func between(ps *redeliver.Problems, field string, value, least, most int) {
	if value < least || value > most {
		ps.Add(field, value, fmt.Sprintf("must be from %d to %d, or 0 for the default", least, most))
	}
}

func seconds(ps *redeliver.Problems, field string, value, least, most time.Duration) {
	if value < least || value > most || value%time.Second != 0 {
		ps.Add(field, value, fmt.Sprintf("must be whole seconds from %s to %s, or 0 for the default", least, most))
	}
}
