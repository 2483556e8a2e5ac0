package redeliver

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// Values for "none", because the zero value of a field means its default.
const (
	// NoRetries as Policy.MaxRetries: a message is never retried.
	NoRetries = -1
	// NoTimeout as Policy.Timeout: a handler may run forever.
	NoTimeout time.Duration = -1
)

// Defaults of [Policy].
const (
	DefaultMaxRetries = 3
	DefaultTimeout    = 5 * time.Minute
	DefaultMaxLevels  = 8
	DefaultMaxCrashes = 3

	// maxPostponed bounds how long a message may be postponed: after 24 h in a row it goes to the DLQ, expired.
	maxPostponed = 24 * time.Hour
)

// Policy is the rule for the failed messages of one subscription. The zero Policy has three retries after 1, 2 and 4 seconds plus
// jitter, and five minutes for each attempt; then a message goes to the DLQ. A Policy may be copied and shared.
type Policy struct {
	// MaxRetries bounds the attempts after the first, immediate or delayed: 3 means at most 4 attempts. Default 3, or the
	// number that belongs to Backoff (RocketMQ 16, RocketMQHTTP 288). NoRetries for none.
	MaxRetries int
	// Immediate is how many of the retries run without a wait, before the first delayed retry. Default 0. At most MaxRetries.
	Immediate int
	// Backoff says how long the delayed retries wait. Default Exponential().
	Backoff Backoff
	// Timeout bounds one attempt. When it is over, the handler's context ends with a TimeoutError and the attempt has failed,
	// even if the handler never returns. Default 5 minutes, at most 366 days. NoTimeout for none.
	Timeout time.Duration
	// MaxTimeout bounds an attempt that its handler extends, see [Extend]. Default four times Timeout, at most 366 days.
	MaxTimeout time.Duration
	// MaxAge bounds a message's age, counted from its timestamp in the origin (or from its first failure if it has no
	// timestamp), or from its latest replay. It is checked before every attempt, the first included: an older message
	// goes to the DLQ, expired, without running. So does a message whose next retry would begin after that time.
	// Default 0, no bound.
	MaxAge time.Duration
	// Order says which messages wait for others. Default [OrderFirstAttempts]. With OrderBlocking a message waits in its place: Backoff is
	// Fixed(1s) by default, and every delay must be from 10 ms to 30 s (that of RetryAfter is cut to these bounds).
	Order Order
	// MaxCrashes is how often the process may die while it runs a message and no other, before the message goes to the DLQ,
	// crashed. Default 3. Each adapter's documentation says which crashes it cannot count.
	MaxCrashes int
	// Classify returns the class of an error. Permanent, RetryAfter and Postpone around an error take precedence. It must be
	// quick and must not block. Default: all errors are retried.
	Classify func(error) Class
	// Invalid is called before every attempt, the first included. An error sends the message to the DLQ, invalidated,
	// without running it, for example because its tenant no longer exists. It must be quick and must not change the
	// message. Default: all messages are valid.
	Invalid func(Message) error
	// ErrorText returns the text of an error for headers and events. The result is redacted (see Redact) and cut to
	// 512 bytes. Default: its Error method, and after a panic also the functions that panicked.
	ErrorText func(error) string
	// Levels are the delays of the levels, ascending, in whole milliseconds. Default: derived from the backoff's delays, see
	// package delayqueue.
	Levels []time.Duration
	// MaxLevels bounds the number of levels that are derived when Levels is not set. Default 8.
	MaxLevels int
	// Rate bounds the attempts that begin in a second. Default: no bound.
	Rate Rate
	// Outage detects an outage of a dependency of the handler, and waits for its end. Default: on; Outage{Off: true} is off.
	Outage Outage
	// DeadLetterRate pauses the intake when too many messages go to the DLQ. Default: off.
	DeadLetterRate DeadLetterRate
}

// Class is the result of Classify. The zero Class is an ordinary failure, which the policy retries.
type Class struct {
	Kind Kind
	// Backoff and MaxRetries replace the policy's for this error if they are not zero.
	Backoff    Backoff
	MaxRetries int
	// MessageAtFault says that the message is the cause of the error, not a dependency of the handler. Such a failure is no sign
	// of an [Outage], counts as an attempt even in an outage, and does not reduce how many messages run (MinInFlight). To detect
	// outages of dependencies only, set it for all other errors.
	MessageAtFault bool
	// Unreachable says that the program that handles the messages does not seem to be there: a gateway answered in its place, or a
	// route is missing. Such a failure counts as an attempt only if the message fails so again, and another attempt, which began
	// in between, has shown that the program is there: by a success, by Permanent or Reject, or by MessageAtFault. Otherwise the
	// message is postponed, and three such failures, one after another, are an [Outage]. Without its detection this has no effect.
	Unreachable bool
}

// Kind is the kind of a failure.
type Kind uint8

// The kinds of failures.
const (
	KindRetry     Kind = iota // worth a retry
	KindPermanent             // dead-lettered now, as by Permanent
	KindPostpone              // put aside without counting an attempt, as by Postpone
)

// Headers reads a message's headers by name. Watermill's Metadata implements it.
type Headers interface{ Get(name string) string }

// Message is the argument of Policy.Invalid.
type Message struct {
	State   State
	Headers Headers // the user's own; redeliver's are in State
	// Key is the record's key on Kafka, the message group on SQS FIFO, and on RabbitMQ the result of Config.Key if the
	// Order is OrderThroughRetries. Nil for none. It must not be changed.
	Key  []byte
	Body []byte // must not be changed
}

// WithDefaults returns the policy with the default in every field that is zero.
func (p Policy) WithDefaults() Policy {
	if p.Backoff == nil {
		p.Backoff = Exponential()
		if p.Order == OrderBlocking {
			p.Backoff = Fixed(limits.DefaultBlock)
		}
	}
	if p.MaxRetries == 0 {
		p.MaxRetries = DefaultMaxRetries
		if c, ok := p.Backoff.(retryCounter); ok && c.defaultRetries() > 0 {
			p.MaxRetries = c.defaultRetries()
		}
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.MaxTimeout == 0 {
		p.MaxTimeout = max(p.Timeout, min(4*max(p.Timeout, 0), MaxWait))
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

// retries returns MaxRetries as a number: NoRetries is 0.
func retries(n int) int { return max(0, n) }

// Validate returns one [ConfigError] with all problems of the policy, or nil. prefix precedes the names of fields ("Policy",
// `Topics["refunds"]`).
func (p Policy) Validate(prefix string) error {
	var ps problems
	p.check(&ps, prefix)
	return ps.Err()
}

func (p Policy) check(ps *problems, prefix string) {
	raw := p
	p = p.WithDefaults()
	field := func(name string) string { return prefix + "." + name }
	if p.MaxRetries < NoRetries || p.MaxRetries > limits.MaxAttempts {
		ps.Add(field("MaxRetries"), p.MaxRetries, fmt.Sprintf("must be from 1 to %d, 0 for the default, or NoRetries", limits.MaxAttempts))
	}
	if p.Immediate < 0 || p.Immediate > retries(p.MaxRetries) {
		ps.Add(field("Immediate"), p.Immediate, fmt.Sprintf("must be from 0 to MaxRetries, %d: immediate tries are retries", retries(p.MaxRetries)))
	}
	if p.Timeout < 0 && p.Timeout != NoTimeout {
		ps.Add(field("Timeout"), p.Timeout, "must be positive, 0 for the default, or NoTimeout")
	}
	if p.Timeout > MaxWait {
		ps.Add(field("Timeout"), p.Timeout, "must not be longer than "+MaxWait.String())
	}
	if p.MaxTimeout < max(p.Timeout, 0) {
		ps.Add(field("MaxTimeout"), p.MaxTimeout, fmt.Sprintf("must be at least Timeout, %s, or 0 for four times that", p.Timeout))
	}
	if raw.MaxTimeout > MaxWait {
		ps.Add(field("MaxTimeout"), p.MaxTimeout, "must not be longer than "+MaxWait.String())
	}
	if p.MaxAge < 0 {
		ps.Add(field("MaxAge"), p.MaxAge, "must not be negative; 0 for no bound")
	}
	if c, ok := p.Backoff.(interface {
		check(ps *problems, field string)
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

// Delays returns the delays of the policy's retries in order, without jitter, and the maximum jitter. ok is false if
// its Backoff cannot list them, see [DelayLister].
func (p Policy) Delays() (delays []time.Duration, jitter time.Duration, ok bool) {
	p = p.WithDefaults()
	n := max(0, retries(p.MaxRetries)-p.Immediate)
	switch b := p.Backoff.(type) {
	case DelayLister:
		delays, jitter = b.Delays(n)
		return delays, jitter, true
	case backOffAdapter:
		delays, ok = b.probe(n)
		return delays, 0, ok
	default:
		return nil, 0, false
	}
}

// LongestDelays returns the delays of Delays, each with its longest jitter. It is empty if there are none.
func (p Policy) LongestDelays() []time.Duration {
	delays, jitter, _ := p.Delays()
	longest := slices.Clone(delays)
	for i, d := range delays {
		width := jitter
		if b, ok := p.Backoff.(ExponentialBackoff); ok {
			width = b.maxJitter(d)
		}
		longest[i] += width
	}
	return longest
}

// Fingerprint returns a hash of the policy's retries, delays, MaxAge and levels. Messages have it in the header redeliver-policy.
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
