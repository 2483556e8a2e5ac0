// Package rules has the rules that hold on every broker: what a Config, the arguments of a call and the names of places must be. An
// adapter adds problems only about rules that its broker alone has.
package rules

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/statekeys"
	"github.com/redeliver/redeliver/observe"
)

// Defaults of [Common].
const (
	DefaultMaxInFlight  = 100
	DefaultDrainTimeout = 10 * time.Second
	DefaultSendTimeout  = engine.DefaultSendTimeout
)

// Common points to the fields that the Configs of adapters have in common. These fields are flat in each Config, so that a literal
// needs no second level. Their wording is the one here, which a test compares, and so are their defaults and checks. An adapter may
// add sentences about its broker. A nil pointer means that the Config lacks the field.
type Common struct {
	// Policy applies to every topic that Topics does not name. Default: the zero Policy, three retries after 1, 2 and 4 s plus
	// jitter.
	Policy *redeliver.Policy
	// Topics are the policies of single topics. Default: none.
	Topics map[string]redeliver.Policy
	// MaxInFlight bounds how many first deliveries of one Subscribe run at once. Default 100.
	MaxInFlight *int
	// MaxRetriesInFlight bounds how many retries run at once in addition. Retries have slots of their own, so that neither starves
	// the other. Default MaxInFlight.
	MaxRetriesInFlight *int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second in which at least half of
	// the messages failed, a limit for first deliveries and retries together is halved, down to MinInFlight. It grows back when
	// messages succeed. Failures that are the message's own fault (permanent, rejected, undecodable) do not count, but postponed
	// messages do. At most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight *int
	// NackDelay is how long a message waits after a nack without an error, for example because the publisher of a Router failed.
	// The nack counts as an attempt. Default: the policy's delay for an error.
	NackDelay *time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that their contexts are cancelled, and
	// their messages come back. Default 10 s.
	DrainTimeout *time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout *time.Duration
	// NoProvisioning refuses to start when one of redeliver's topics is missing, instead of creating it. Plan lists them. Default:
	// they are created.
	NoProvisioning bool
	// DLQ configures the DLQ. Default: it keeps its messages.
	DLQ *deadletter.Config
	// StateKeys sign the state that redeliver keeps with its messages (HMAC-SHA256 over the state and the digest of the body). The
	// first key signs; a state signed with any of them is believed. Give every process of the queue the same keys, the command and
	// the console included.
	//
	// To change a key, first add the new one as the second key everywhere, then make it the first. Remove the old one when no
	// waiting message and no dead letter is signed with it. With keys, an unsigned state is ignored: its message is a new one, even
	// if it was waiting when the first key came. At least 16 random bytes each. Default: none.
	StateKeys [][]byte
	// Sink receives the events. Default: NewSlogSink.
	Sink *redeliver.Sink
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer

	// OfQueues says that the Config calls its topics queues.
	OfQueues bool
	// DefaultInFlight is the default of MaxInFlight, if it is not DefaultMaxInFlight.
	DefaultInFlight int
	// NamesDLQ says that a name of the DLQ is set.
	NamesDLQ bool
}

// Limits are what a broker allows. Zero values allow everything.
type Limits struct {
	Orders      []redeliver.Order
	MaxInFlight int
	// CheckName refuses names of topics or queues.
	CheckName func(ps *check.Problems, field, name string)
	// MinRetention and MaxRetention are those of a DLQ.
	MinRetention, MaxRetention time.Duration
}

// SetDefaults replaces zero values by defaults.
func (c *Common) SetDefaults() {
	setDefault(c.MaxInFlight, cmp.Or(c.DefaultInFlight, DefaultMaxInFlight))
	if c.MaxInFlight != nil {
		setDefault(c.MaxRetriesInFlight, *c.MaxInFlight)
	}
	setDefault(c.DrainTimeout, DefaultDrainTimeout)
	setDefault(c.SendTimeout, DefaultSendTimeout)
	if c.Sink != nil && *c.Sink == nil {
		*c.Sink = redeliver.NewSlogSink(slog.Default())
	}
}

func setDefault[T comparable](field *T, value T) {
	if field != nil {
		*field = cmp.Or(*field, value)
	}
}

// Check adds the problems of the fields, which have their defaults.
func (c *Common) Check(ps *check.Problems, l Limits) {
	checkPolicy := func(field string, p redeliver.Policy) {
		ps.CheckPolicy(field, p)
		if l.Orders != nil {
			ps.CheckOrder(field, p, l.Orders...)
		}
	}
	checkPolicy("Policy", *c.Policy)
	for _, name := range c.names() {
		if l.CheckName != nil {
			l.CheckName(ps, c.field(name), name)
		}
		checkPolicy(c.field(name), c.Topics[name])
	}
	if c.DLQ != nil {
		ps.Include(c.DLQ.Validate(l.MinRetention, l.MaxRetention))
		if c.DLQ.Discard && c.NamesDLQ {
			ps.Add("Names.DLQ", "set", "must not be set where DLQ.Discard is: there is no DLQ")
		}
	}
	checkCount := func(field string, n *int, minValue, maxValue int) {
		if n != nil {
			ps.CheckCount(field, *n, minValue, maxValue)
		}
	}
	checkCount("MaxInFlight", c.MaxInFlight, 1, l.MaxInFlight)
	checkCount("MaxRetriesInFlight", c.MaxRetriesInFlight, 1, l.MaxInFlight)
	checkCount("MinInFlight", c.MinInFlight, 0, max(1, *c.MaxInFlight))
	ps.CheckDuration("NackDelay", *c.NackDelay, 0, redeliver.MaxWait)
	ps.CheckDuration("DrainTimeout", *c.DrainTimeout, time.Nanosecond, redeliver.MaxWait)
	ps.CheckDuration("SendTimeout", *c.SendTimeout, time.Nanosecond, redeliver.MaxWait)
	statekeys.Keys(c.StateKeys).Check(ps)
}

// Policies yields all policies, with the names of their fields.
func (c *Common) Policies() iter.Seq2[string, redeliver.Policy] {
	return func(yield func(string, redeliver.Policy) bool) {
		if !yield("Policy", *c.Policy) {
			return
		}
		for _, name := range c.names() {
			if !yield(c.field(name), c.Topics[name]) {
				return
			}
		}
	}
}

func (c *Common) names() []string { return slices.Sorted(maps.Keys(c.Topics)) }

func (c *Common) field(name string) string {
	if c.OfQueues {
		return fmt.Sprintf("Queues[%q]", name)
	}
	return fmt.Sprintf("Topics[%q]", name)
}

// PolicyOf returns the policy of a topic or queue with its defaults, and the name of its field.
func (c *Common) PolicyOf(name string) (p redeliver.Policy, field string) {
	if p, ok := c.Topics[name]; ok {
		return p.WithDefaults(), c.field(name)
	}
	return c.Policy.WithDefaults(), "Policy"
}
