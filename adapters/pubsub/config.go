package pubsub

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	defaultMaxInFlight  = 16
	defaultDrainTimeout = 10 * time.Second
	defaultSendTimeout  = 30 * time.Second

	maxInFlight = 1000 // each is one Subscribe of the user's subscriber
)

// NoLimit is a Config.MaxUnacked without a bound: the subscriber never takes back an unacked message
// while its consumer lives.
const NoLimit time.Duration = -1

// Config configures how a service reads topics of a Watermill Pub/Sub with retries, delays and a
// DLQ. Publisher, Subscriber, Group, Confirms and MaxUnacked are required.
type Config struct {
	// Publisher writes waiting messages, retries and dead letters. Publish must be synchronous: see
	// Confirms. The Client does not close it; close it after the Client. Required.
	Publisher message.Publisher
	// Subscriber reads the service's topics and redeliver's own. It must be a member of Group: only one
	// of the subscribers of a topic in that group gets a message, unacked messages come back, and
	// messages that were published before the first subscription are delivered. [Check] tests that.
	// The Client does not close it; close it after the Client. Required.
	Subscriber message.Subscriber
	// Group is the group of Subscriber. Retries come back to it only. Required.
	Group string
	// Confirms declares that Publish returns nil only when the broker has stored the message: then
	// redeliver acks the original. redeliver cannot check that, so it must be declared. Required.
	Confirms bool
	// MaxUnacked is how long the subscriber leaves an unacked message with its process before it
	// gives it to another: the idle time of a Redis consumer, the visibility timeout of SQS, the
	// AckWait of NATS. It bounds the levels, and must be longer than attempts may take. Use NoLimit
	// if only the end of the process or its connection gives a message back. Required.
	MaxUnacked time.Duration
	// Policy applies to every topic that Topics does not name. Default: the zero Policy, three
	// retries after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// Names are the names of redeliver's topics. Default: see Names.
	Names Names
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once, and also how many
	// retries. For each one redeliver calls Subscriber.Subscribe, which delivers one message at a
	// time. Default 16, at most 1000.
	MaxInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. The limit for
	// first deliveries and retries together begins at twice MaxInFlight. It is halved after every
	// second in which half of the messages failed, down to MinInFlight, and grows back when messages
	// succeed. Failures that are the message's own fault (permanent, rejected, undecodable) do not
	// count, but postponed messages do. Messages that wait for a slot are unacked meanwhile, so
	// MaxUnacked must leave time for 2 x MaxInFlight / MinInFlight attempts one after another. At
	// most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight int
	// NackDelay is the delay of a message that was nacked without an error. The nack counts as an
	// attempt. Default: the policy's delay for an error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that their
	// contexts are cancelled, and their messages come back. Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// NoProvisioning creates none of redeliver's topics. Default: if Subscriber is a
	// message.SubscribeInitializer, its SubscribeInitialize is called for each of redeliver's topics,
	// the DLQ included, before anything is read.
	NoProvisioning bool
	// Refused reports whether an error of Publish concerns only this message and no other try can
	// fix it, for example because the message is too large. If Publish to a delay topic returns such
	// an error, the message goes to the DLQ, unschedulable. If Publish to the DLQ does, the message
	// goes there without its payload and metadata. Every other error pauses the intake at first.
	// After 8 tries redeliver writes other messages: if that works, the error concerns this message.
	// Refused must be safe for concurrent use. Default: no error is known to concern one message.
	Refused func(error) bool
	// Decode gets each message before its handler, and may change it. An error, or a panic, sends
	// the message as it was to the DLQ, undecodable. It must be safe for concurrent use. Default:
	// it accepts all messages.
	Decode func(*message.Message) error
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
}

func (c Config) withDefaults() Config {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, defaultMaxInFlight)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultDrainTimeout)
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSendTimeout)
	if c.Sink == nil {
		c.Sink = redeliver.NewSlogSink(slog.Default())
	}
	return c
}

// policy returns the policy of a topic with its defaults.
func (c *Config) policy(topic string) redeliver.Policy {
	if p, ok := c.Topics[topic]; ok {
		return p.WithDefaults()
	}
	return c.Policy.WithDefaults()
}

// validate returns all problems at once. c must have its defaults.
func (c *Config) validate() error {
	var ps check.Problems
	if c.Publisher == nil {
		ps.Add("Publisher", "nil", "it is required")
	}
	if c.Subscriber == nil {
		ps.Add("Subscriber", "nil", "it is required")
	}
	if c.Group == "" {
		ps.Add("Group", `""`, "it is required: a retry comes back to the group that failed it")
	}
	if !c.Confirms {
		ps.Add("Confirms", false, "must be true: a message is acked when Publisher has returned nil, and lost if the broker does not have it then; see docs/reference/watermill-pubsubs.md for the settings of yours")
	}
	c.checkPolicy(&ps, "Policy", c.Policy)
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		c.checkPolicy(&ps, fmt.Sprintf("Topics[%q]", topic), c.Topics[topic])
	}
	if c.MaxUnacked <= 0 && c.MaxUnacked != NoLimit {
		ps.Add("MaxUnacked", c.MaxUnacked, "it is required: how long the subscriber leaves an unacked message with its consumer, or NoLimit")
	}
	ps.CheckCount("MaxInFlight", c.MaxInFlight, 1, maxInFlight)
	ps.CheckCount("MinInFlight", c.MinInFlight, 0, max(1, c.MaxInFlight))
	ps.CheckDuration("NackDelay", c.NackDelay, 0, redeliver.MaxWait)
	ps.CheckDuration("DrainTimeout", c.DrainTimeout, time.Nanosecond, redeliver.MaxWait)
	ps.CheckDuration("SendTimeout", c.SendTimeout, time.Nanosecond, redeliver.MaxWait)
	return ps.Err()
}

// checkPolicy adds the problems of a policy.
func (c *Config) checkPolicy(ps *check.Problems, field string, p redeliver.Policy) {
	before := len(*ps)
	if ps.CheckPolicy(field, p); len(*ps) > before {
		return
	}
	ps.CheckOrder(field, p, redeliver.OrderFirstAttempts, redeliver.OrderNone)
	p = p.WithDefaults()
	if len(p.Levels) > delayTopics {
		ps.Add(field+".Levels", len(p.Levels), fmt.Sprintf("must be at most %d levels: that is the number of delay topics, whatever the policy", delayTopics))
	} else if p.MaxLevels > delayTopics {
		ps.Add(field+".MaxLevels", p.MaxLevels, fmt.Sprintf("must be at most %d: that is the number of delay topics, whatever the policy", delayTopics))
	}
	if c.MaxUnacked <= 0 {
		return
	}
	rule := "after that the subscriber gives the message to another consumer, so a longer attempt runs beside its own copy"
	if p.Timeout == redeliver.NoTimeout {
		ps.Add(field+".Timeout", "NoTimeout", fmt.Sprintf("must be below MaxUnacked, %s: %s", c.MaxUnacked, rule))
		return
	}
	busy := p.Timeout*time.Duration(1+p.Immediate) + c.SendTimeout
	if busy > c.MaxUnacked {
		ps.Add(field+".Timeout", p.Timeout, fmt.Sprintf("with its immediate tries and SendTimeout (%s) makes %s and must not be above MaxUnacked, %s: %s", c.SendTimeout, busy, c.MaxUnacked, rule))
		return
	}
	if lanes := 2 * c.MaxInFlight; p.Rate != (redeliver.Rate{}) && float64(lanes)/p.Rate.PerSecond > (c.MaxUnacked-busy).Seconds() {
		ps.Add(field+".Rate.PerSecond", p.Rate.PerSecond, fmt.Sprintf("must let the messages of %d lanes begin, and the last of them run for %s, within MaxUnacked, %s: they wait unacked. Raise the rate, or lower MaxInFlight", lanes, busy, c.MaxUnacked))
	}
	if c.MinInFlight > 0 && c.MinInFlight <= c.MaxInFlight {
		// The last waiting message may wait for this many attempts.
		if turns := (2*c.MaxInFlight + c.MinInFlight - 1) / c.MinInFlight; busy > c.MaxUnacked/time.Duration(turns) {
			ps.Add("MinInFlight", c.MinInFlight, fmt.Sprintf("lets up to %d attempts of %s run one after another while the last message of them waits unacked: that must not be above MaxUnacked, %s", turns, busy, c.MaxUnacked))
		}
	}
}
