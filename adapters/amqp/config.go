package amqp

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	DefaultMaxInFlight     = rules.DefaultMaxInFlight
	defaultDialTimeout     = 10 * time.Second
	defaultConsumerTimeout = 30 * time.Minute // RabbitMQ's default
	// defaultJitterPrefetch is RetryPrefetch if the policy's backoff has jitter: this many messages
	// may wait for the end of their jitter.
	defaultJitterPrefetch = 4000
	defaultRetryBytes     = 32 << 20
	// defaultKeyPrefetch is the smallest default of Prefetch if the Order is OrderThroughRetries. Waiting
	// messages, and those behind them, count towards it.
	defaultKeyPrefetch = 1000
	// defaultBlockingPrefetch is the default of Prefetch if the Order is OrderBlocking. It does not
	// depend on MaxInFlight, which a deploy may change: see Config.Prefetch.
	defaultBlockingPrefetch = DefaultMaxInFlight

	maxPrefetch = 65535
)

// Config configures how a service reads queues of RabbitMQ with retries, delays and a DLQ. URLs is
// required.
type Config struct {
	// URLs are the brokers, "amqp://user:password@host:5672/vhost" or amqps,
	// tried in turn. Required.
	URLs []string
	// Policy applies to every queue that Queues does not name. Default: the zero Policy, three retries
	// after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Queues are the policies of single queues. Default: none.
	Queues map[string]redeliver.Policy
	// Key returns the key of a message if the Order of a policy is redeliver.OrderThroughRetries. [KeyHeader]
	// returns a header; a routing key or a property works, too. One goroutine for each queue calls
	// it once for each delivery. If Policy.Invalid is set, that includes the queues that bring
	// retries and replays. It must be quick, and must not change the delivery. A message with an
	// empty key waits for no other. A message for which Key panics is undecodable. Key is required
	// if an Order is OrderThroughRetries, and not called otherwise.
	Key func(amqp091.Delivery) string
	// Topology maps a topic to a queue. Default: Queue, the queue of the topic's name.
	Topology Topology
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once in addition. Retries have slots of their
	// own, so that neither starves the other. Default MaxInFlight.
	MaxRetriesInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second
	// in which at least half of the messages failed, a limit for first deliveries and retries together
	// is halved, down to MinInFlight. It grows back when messages succeed. Failures that are the
	// message's own fault (permanent, rejected, undecodable) do not count, but postponed messages do.
	// At most MaxInFlight. A message that waits in its place is in flight. Default 0: nothing shrinks.
	MinInFlight int
	// Prefetch is how many unacked first deliveries the broker sends to one Subscribe. The default,
	// and the minimum, is MaxInFlight. The maximum is twice MaxInFlight, because RabbitMQ also
	// counts deliveries of messages that did not run: see Crashes in docs/reference/rabbitmq.md.
	// If only some queues have OrderThroughRetries or OrderBlocking, the others use at most twice
	// MaxInFlight.
	//
	// If the Order is OrderThroughRetries or OrderBlocking, the maximum is 65,535. The default is 1,000 with OrderThroughRetries,
	// or MaxInFlight if that is more, and 100 with OrderBlocking. All processes of such a queue need the
	// same Prefetch. The messages that a process leaves unacked go behind those that an earlier one
	// with a larger Prefetch has left. Drain the queue before you change it.
	Prefetch int
	// RetryPrefetch is the same for each queue that brings retries. It includes messages that wait
	// in this process for the rest of their delay. These messages
	// are in memory: see RetryBytes. A subscriber begins with few and asks for more as they are
	// used; then, for a moment, it may have half as many more. The retry queue, whose messages are
	// due, uses at most twice MaxRetriesInFlight. Default: 4,000 if the policy's backoff has
	// jitter, otherwise twice MaxRetriesInFlight. At most 65,535.
	RetryPrefetch int
	// RetryBytes bounds the bytes of the messages, with their headers, that each of these queues has
	// unacked in this process. The
	// broker has no such bound, so the subscriber estimates the size of the next messages from
	// earlier ones, and asks for fewer. The others wait in the queue; if the backoff has jitter,
	// they may be late. Default 32 MiB.
	RetryBytes int
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// DialTimeout bounds one try to connect. Default 10 s.
	DialTimeout time.Duration
	// ConsumerTimeout is the broker's own setting consumer_timeout: the broker closes the channel
	// of a consumer that keeps a message longer. A message that has waited here for half of it, and
	// has not run, goes back. Default 30 min, RabbitMQ's default.
	ConsumerTimeout time.Duration
	// NoProvisioning refuses to start when one of redeliver's queues is missing, instead of creating
	// it. Plan lists them. Default: they are created.
	NoProvisioning bool
	// ManagementURL is the broker's management API, "http://user:password@host:15672". With it Plan
	// and Subscribe also check what AMQP does not show: policies, limits, stuck messages. Subscribe
	// refuses what Plan refuses. If the API does not answer, Subscribe reports it (the event "not
	// checked") and continues. Default: no management API.
	ManagementURL string
	// DLQ configures the DLQ. Default: it keeps its messages.
	DLQ deadletter.Config
	// Names are the names of redeliver's queues. Default: see Names.
	Names Names
	// Marshaler turns deliveries into Watermill messages and back. Default:
	// DefaultMarshaler.
	Marshaler Marshaler
	// StateKeys sign the state that redeliver keeps with its messages (HMAC-SHA256 over the state and
	// the digest of the body). The first key signs; a state signed with any of them is believed. Give
	// every process of the queue the same keys, the command and the console included.
	//
	// To change a key, first add the new one as the second key everywhere, then make it the first.
	// Remove the old one when no waiting message and no dead letter is signed with it. With keys, an
	// unsigned state is ignored: its message is a new one, even if it was waiting when the first key
	// came. At least 16 random bytes each. Use them for virtual hosts where others may write to the
	// default exchange, which reaches every queue. Default: none.
	StateKeys [][]byte
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
	// AMQP is the client's configuration: TLS, SASL, heartbeat, frame size, connection properties.
	// The frame size must be at least 8 KiB, and so must the broker's frame_max.
	// Its Recovery must be nil: redeliver reconnects itself, because a recovered channel lets a
	// late ack settle another message. Default: the zero Config of amqp091-go.
	AMQP amqp091.Config
}

func (c Config) withDefaults() Config {
	c.common().SetDefaults()
	c.RetryBytes = cmp.Or(c.RetryBytes, defaultRetryBytes)
	c.DialTimeout = cmp.Or(c.DialTimeout, defaultDialTimeout)
	c.ConsumerTimeout = cmp.Or(c.ConsumerTimeout, defaultConsumerTimeout)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	return c
}

// link returns the options of a connection. If it reads messages, a filter checks their headers.
func (c Config) link(name string, reads bool) link.Options {
	return link.Options{URLs: c.URLs, AMQP: c.AMQP, DialTimeout: c.DialTimeout, Name: name, Reads: reads}
}

// management returns a reader of the management API, or nil if ManagementURL is not set.
func (c Config) management() *management.API {
	if c.ManagementURL == "" {
		return nil
	}
	return management.New(c.ManagementURL, c.URLs[0], c.AMQP)
}

func (c Config) names() layout.Names { return layout.Names(c.Names) }

// common returns the fields that other adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Queues, OfQueues: true, DLQ: &c.DLQ, NamesDLQ: c.Names.DLQ != nil, StateKeys: c.StateKeys,
		MaxInFlight: &c.MaxInFlight, MaxRetriesInFlight: &c.MaxRetriesInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// policy returns the policy of a queue with its defaults, and its field. The default of MaxTimeout does not exceed what the broker
// allows.
func (c Config) policy(queue string) (p redeliver.Policy, field string) {
	given := c.Policy
	if own, ok := c.Queues[queue]; ok {
		given = own
	}
	p, field = c.common().PolicyOf(queue)
	if given.MaxTimeout == 0 {
		p.MaxTimeout = max(p.Timeout, min(p.MaxTimeout, c.ConsumerTimeout/time.Duration(1+max(0, p.Immediate))))
	}
	return p, field
}

// maxUnrunPerSlot is how many unacked messages an unordered queue may have for each slot. The broker's delivery
// count also rises for those that have not begun.
const maxUnrunPerSlot = 2

// prefetch returns the Prefetch for a policy.
func (c Config) prefetch(p redeliver.Policy) int {
	switch {
	case c.Prefetch != 0 && layout.Ordered(p):
		return c.Prefetch
	case c.Prefetch != 0:
		return min(c.Prefetch, maxUnrunPerSlot*c.MaxInFlight)
	case p.Order == redeliver.OrderThroughRetries:
		return max(c.MaxInFlight, defaultKeyPrefetch)
	case p.Order == redeliver.OrderBlocking:
		return defaultBlockingPrefetch
	default:
		return c.MaxInFlight
	}
}

// retryPrefetch returns the RetryPrefetch for a policy.
func (c Config) retryPrefetch(p redeliver.Policy) int {
	if c.RetryPrefetch > 0 {
		return c.RetryPrefetch
	}
	n := 2 * c.MaxRetriesInFlight
	if _, jitter, ok := p.Delays(); !ok || jitter > 0 {
		n = max(n, defaultJitterPrefetch)
	}
	return min(n, maxPrefetch)
}

// validate returns all problems at once. c must have its defaults.
func (c Config) validate() error {
	var ps check.Problems
	checkURLs(&ps, c.URLs)
	c.common().Check(&ps, rules.Limits{MaxInFlight: maxPrefetch, CheckName: layout.CheckQueue, MinRetention: time.Minute})
	c.Topology.check(&ps)
	if c.Prefetch != 0 {
		minPrefetch := min(max(1, c.MaxInFlight), maxPrefetch)
		maxAllowed := maxPrefetch
		if !c.anyOrdered() {
			maxAllowed = min(maxUnrunPerSlot*minPrefetch, maxAllowed)
		}
		ps.CheckCount("Prefetch", c.Prefetch, minPrefetch, maxAllowed)
	}
	if c.RetryPrefetch != 0 {
		ps.CheckCount("RetryPrefetch", c.RetryPrefetch, min(max(1, c.MaxRetriesInFlight), maxPrefetch), maxPrefetch)
	}
	ps.CheckCount("RetryBytes", c.RetryBytes, 1, math.MaxInt32)
	ps.CheckDuration("DialTimeout", c.DialTimeout, time.Nanosecond, 0)
	ps.CheckDuration("ConsumerTimeout", c.ConsumerTimeout, time.Second, 0)
	if c.ManagementURL != "" {
		if u, err := url.Parse(c.ManagementURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			ps.Add("ManagementURL", redeliver.RedactAddress(c.ManagementURL), "must be http://user:password@host:15672, or https")
		}
	}
	checkClient(&ps, c.AMQP)
	return ps.Err()
}

// anyOrdered reports whether any policy is ordered.
func (c Config) anyOrdered() bool {
	for _, p := range c.common().Policies() {
		if layout.Ordered(p) {
			return true
		}
	}
	return false
}

func checkURLs(ps *check.Problems, urls []string) {
	rules.RequireBrokers(ps, "URLs", urls, "amqp://user:password@host:5672/vhost")
	for i, u := range urls {
		if uri, err := amqp091.ParseURI(u); err != nil || uri.Host == "" || !strings.Contains(u, "://") {
			ps.Add(fmt.Sprintf("URLs[%d]", i), redeliver.RedactAddress(u), "must be an amqp:// or amqps:// URL")
		}
	}
}

// checkClient checks the client's configuration.
func checkClient(ps *check.Problems, cfg amqp091.Config) {
	if cfg.FrameSize != 0 {
		ps.CheckCount("AMQP.FrameSize", cfg.FrameSize, wire.MinFrame, 0)
	}
	if cfg.Recovery != nil {
		ps.Add("AMQP.Recovery", "set", "must be nil: on a recovered channel a late ack settles another message; redeliver reconnects itself")
	}
}
