package pubsub

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Config].
const (
	defaultMaxInFlight = 16
	maxInFlight        = 1000 // each is one Subscribe of the user's subscriber
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
	// Policy applies to every topic that Topics does not name. Default: the zero Policy, three retries
	// after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// Names are the names of redeliver's topics. Default: see Names.
	Names Names
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. As many retries may
	// run in addition. For each one redeliver calls Subscriber.Subscribe, which delivers one message
	// at a time. At most 1000. Default 16.
	MaxInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second
	// in which at least half of the messages failed, a limit for first deliveries and retries together
	// is halved, down to MinInFlight. It grows back when messages succeed. Failures that are the
	// message's own fault (permanent, rejected, undecodable) do not count, but postponed messages do.
	// At most MaxInFlight. The limit begins at twice MaxInFlight. Messages that wait for a slot are
	// unacked meanwhile, so MaxUnacked must leave time for 2 x MaxInFlight / MinInFlight attempts one
	// after another. Default 0: nothing shrinks.
	MinInFlight int
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. Default 10 s.
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
	c.common().SetDefaults()
	return c
}

// policy returns the policy of a topic with its defaults.
func (c *Config) policy(topic string) redeliver.Policy {
	p, _ := c.common().PolicyOf(topic)
	return p
}

// common returns the fields that other adapters have, too.
func (c *Config) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, Topics: c.Topics, DefaultInFlight: defaultMaxInFlight, MaxInFlight: &c.MaxInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// validate returns all problems at once. c must have its defaults.
func (c *Config) validate() error {
	var ps check.Problems
	rules.Require(&ps, "Publisher", c.Publisher != nil)
	rules.Require(&ps, "Subscriber", c.Subscriber != nil)
	rules.RequireGroup(&ps, "Group", c.Group)
	if !c.Confirms {
		ps.Add("Confirms", false, "must be true: a message is acked when Publisher has returned nil, and lost if the broker does not have it then; see docs/reference/watermill-pubsubs.md for the settings of yours")
	}
	c.common().Check(&ps, rules.Limits{Orders: []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone}, MaxInFlight: maxInFlight})
	for field, p := range c.common().Policies() {
		c.checkPolicy(&ps, field, p)
	}
	if c.MaxUnacked <= 0 && c.MaxUnacked != NoLimit {
		ps.Add("MaxUnacked", c.MaxUnacked, "it is required: how long the subscriber leaves an unacked message with its consumer, or NoLimit")
	}
	return ps.Err()
}

// checkPolicy adds the problems that a valid policy has here.
func (c *Config) checkPolicy(ps *check.Problems, field string, p redeliver.Policy) {
	if p.Validate(field) != nil {
		return
	}
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
