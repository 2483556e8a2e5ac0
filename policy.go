package redeliver

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"
)

// Names for "none" where the zero value of a field means its default.
const (
	// NoRetries as Policy.MaxRetries: the first failure is the last.
	NoRetries = -1
	// NoTimeout as Policy.Timeout: a handler may run for ever.
	NoTimeout time.Duration = -1
)

// Defaults of [Policy].
const (
	DefaultMaxRetries = 3
	DefaultTimeout    = 5 * time.Minute
	DefaultMaxLevels  = 8
	DefaultMaxCrashes = 3

	// MaxPostponed bounds how long a message may be postponed: after 24 h
	// behind an open breaker it goes to the DLQ as expired.
	MaxPostponed = 24 * time.Hour
)

// Policy says what becomes of the failed messages of one subscription. The zero
// Policy is complete: three retries after 1, 2 and 4 seconds plus jitter, five
// minutes for each attempt, then the DLQ. A Policy may be copied and shared.
type Policy struct {
	// MaxRetries bounds the attempts after the first, immediate or delayed: 3
	// means at most 4 attempts. Default 3, or the number that Backoff was drawn
	// up for (RocketMQ 16, RocketMQHTTP 288). NoRetries for none.
	MaxRetries int
	// Immediate is how many of the retries are made at once, in the process,
	// before the first delayed one. Default 0. At most MaxRetries.
	Immediate int
	// Backoff says how long the delayed retries wait. Default Exponential().
	Backoff Backoff
	// Timeout bounds one attempt. When it is over the handler's context is
	// cancelled with a TimeoutError and the attempt has failed, even when the
	// handler never returns. Default 5 minutes. NoTimeout for none.
	Timeout time.Duration
	// MaxTimeout bounds an attempt that its handler extends, see [Extend]. Default four times Timeout.
	MaxTimeout time.Duration
	// MaxAge bounds a message's life from its timestamp in the origin (where it has none: from its first failure), or from
	// its latest replay out of the DLQ. It is checked before every attempt, the first included: a message that is older goes
	// to the DLQ, expired, without running. A retry that would begin later is not waited for. Default 0, no bound.
	MaxAge time.Duration
	// Order says which messages wait for which. Default [KeyOrder]. A Blocking policy
	// waits where its message is: its Backoff is Fixed(1s) by default, and every
	// delay must be from 10 ms to 30 s (RetryAfter's is cut to that).
	Order Order
	// MaxCrashes is how often the process may die while it runs a message and
	// no other: then the message goes to the DLQ, crashed. Default 3. What an
	// adapter cannot count stands in its package's documentation.
	MaxCrashes int
	// Classify says what kind of failure an error is. Default: all errors are
	// retried, except those wrapped by Permanent, RetryAfter and Postpone,
	// whose word always comes first. It must be quick and must not block.
	Classify func(error) Class
	// Invalid is asked before every attempt, the first included; an error from
	// it sends the message to the DLQ, invalidated, without running it (its
	// tenant is gone, its deadline is over). Default: all messages are valid.
	// It must be quick and must not change the message.
	Invalid func(Message) error
	// ErrorText says how an error is written down in headers and events.
	// Default: its Error method, and after a panic the place of it. The result is redacted (see Redact) and cut to
	// MaxErrorText bytes in any case.
	ErrorText func(error) string
	// Supersede has this policy's rule decide about messages that wait under another
	// one, from before a deploy, too. Default: each finishes by the rule under which
	// it failed, see [Policy.Schedule]. It is for a deploy that repairs a rule; the
	// wait that a message is in it does not shorten.
	Supersede bool
	// Levels are the rungs of the delay ladder, ascending, in whole
	// milliseconds. Default: made of the backoff's own delays, see
	// package delayqueue.
	Levels []time.Duration
	// MaxLevels bounds the number of levels that are made when Levels is not
	// given. Default 8.
	MaxLevels int
	// Rate bounds how many attempts begin in a second. Default: no bound.
	Rate Rate
	// Outage tells an outage of what the handler depends on from messages that fail,
	// and waits for its end. Default: off; DefaultOutage() is on.
	Outage Outage
	// DeadLetterRate pauses when too many messages go to the DLQ. Default: off.
	DeadLetterRate DeadLetterRate
}

// Class is what Classify says of an error. The zero Class is an ordinary
// failure, retried as the policy says.
type Class struct {
	Kind Kind
	// Backoff and MaxRetries, where they are not zero, stand in for the
	// policy's own for this error.
	Backoff    Backoff
	MaxRetries int
}

// Kind is the kind of a failure.
type Kind uint8

// The kinds of failures.
const (
	KindRetry     Kind = iota // worth a retry
	KindPermanent             // dead-lettered now, as by Permanent
	KindPostpone              // put aside without counting an attempt, as by Postpone
)

// Headers reads a message's headers by name; Watermill's Metadata is one.
type Headers interface{ Get(name string) string }

// Message is what Policy.Invalid is shown.
type Message struct {
	State   State
	Headers Headers // the user's own; redeliver's are in State
	// Key is the record's on Kafka, the message group's on SQS FIFO, and on RabbitMQ what
	// Config.Key says of it, where the Order is PerKey. Nil for none. It must not be changed.
	Key  []byte
	Body []byte // must not be changed
}

// WithDefaults returns the policy with its defaults filled in. Fields that say
// "none" keep doing so.
func (p Policy) WithDefaults() Policy {
	if p.Backoff == nil {
		p.Backoff = Exponential()
		if p.Order == Blocking {
			p.Backoff = Fixed(DefaultBlock)
		}
	}
	if p.MaxRetries == 0 {
		p.MaxRetries = DefaultMaxRetries
		if c, ok := p.Backoff.(retryCounter); ok && c.retries() > 0 {
			p.MaxRetries = c.retries()
		}
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.MaxTimeout == 0 {
		p.MaxTimeout = 4 * max(p.Timeout, 0)
		if p.Timeout > math.MaxInt64/4 {
			p.MaxTimeout = p.Timeout
		}
	}
	if p.MaxLevels == 0 {
		p.MaxLevels = DefaultMaxLevels
	}
	if p.MaxCrashes == 0 {
		p.MaxCrashes = DefaultMaxCrashes
	}
	p.guardDefaults()
	return p
}

// retries is MaxRetries as a number: NoRetries is 0.
func retries(n int) int { return max(0, n) }

// Validate returns one [ConfigError] with everything that is wrong with the
// policy, or nil. The fields are named below prefix ("Policy", `Topics["refunds"]`).
func (p Policy) Validate(prefix string) error {
	var ps Problems
	p.check(&ps, prefix)
	return ps.Err()
}

func (p Policy) check(ps *Problems, prefix string) {
	raw := p
	p = p.WithDefaults()
	field := func(name string) string { return prefix + "." + name }
	if p.MaxRetries < NoRetries || p.MaxRetries > MaxAttempts {
		ps.Add(field("MaxRetries"), p.MaxRetries, fmt.Sprintf("must be from 1 to %d, 0 for the default, or NoRetries", MaxAttempts))
	}
	if p.Immediate < 0 || p.Immediate > retries(p.MaxRetries) {
		ps.Add(field("Immediate"), p.Immediate, fmt.Sprintf("must be from 0 to MaxRetries, %d: immediate tries are retries", retries(p.MaxRetries)))
	}
	if p.Timeout < 0 && p.Timeout != NoTimeout {
		ps.Add(field("Timeout"), p.Timeout, "must be positive, 0 for the default, or NoTimeout")
	}
	if p.MaxTimeout < max(p.Timeout, 0) {
		ps.Add(field("MaxTimeout"), p.MaxTimeout, fmt.Sprintf("must be at least Timeout, %s, or 0 for four times that", p.Timeout))
	}
	if p.MaxAge < 0 {
		ps.Add(field("MaxAge"), p.MaxAge, "must not be negative; 0 for no bound")
	}
	if c, ok := p.Backoff.(interface {
		check(ps *Problems, field string)
	}); ok {
		c.check(ps, field("Backoff"))
	}
	p.checkOrder(ps, field)
	if p.MaxLevels < 1 || p.MaxLevels > 64 {
		ps.Add(field("MaxLevels"), raw.MaxLevels, "must be from 1 to 64, 0 for the default")
	}
	if p.MaxCrashes < 1 || p.MaxCrashes > 100 {
		ps.Add(field("MaxCrashes"), raw.MaxCrashes, "must be from 1 to 100, 0 for the default")
	}
	p.checkGuards(ps, field)
	for i, d := range p.Levels {
		checkDelay(ps, fmt.Sprintf("%s[%d]", field("Levels"), i), d)
		if d%time.Millisecond != 0 {
			ps.Add(fmt.Sprintf("%s[%d]", field("Levels"), i), d, "must be in whole milliseconds")
		}
		if i > 0 && d <= p.Levels[i-1] {
			ps.Add(fmt.Sprintf("%s[%d]", field("Levels"), i), d, "must be longer than the level before it, "+p.Levels[i-1].String())
		}
	}
}

// Delays returns the delays of the policy's planned retries in order, without
// jitter, and the most that jitter adds. ok is false when its Backoff cannot
// tell them.
func (p Policy) Delays() (delays []time.Duration, jitter time.Duration, ok bool) {
	p = p.WithDefaults()
	listed, ok := p.Backoff.(Listed)
	if !ok {
		return nil, 0, false
	}
	delays, jitter = listed.Delays(max(0, retries(p.MaxRetries)-p.Immediate))
	return delays, jitter, true
}

// Fingerprint names the schedule: policies with the same retries, delays and
// levels have the same. It travels in the header redeliver-policy.
func (p Policy) Fingerprint() string {
	p = p.WithDefaults()
	h := fnv.New64a()
	if len(p.Levels) == 0 {
		_, _ = fmt.Fprintf(h, "%d ", p.MaxLevels)
	}
	_, _ = fmt.Fprintf(h, "%d %d %s %v ", retries(p.MaxRetries), p.Immediate, p.MaxAge, p.Levels)
	if delays, jitter, ok := p.Delays(); ok {
		_, _ = fmt.Fprintf(h, "%v %s", delays, jitter)
	} else {
		_, _ = fmt.Fprintf(h, "%T", p.Backoff)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
