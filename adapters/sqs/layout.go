package sqs

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Limits of redeliver's queues.
const (
	// maxReceiveCount is SQS's maximum. No message reaches it: redeliver counts crashes, and moves the message to the DLQ
	// earlier.
	maxReceiveCount = 1000
	// maxRetention is SQS's maximum, used for dead letters.
	maxRetention = 14 * 24 * time.Hour
)

// queue is one queue, as SQS describes it.
type queue struct {
	name string
	kind kind
	url  string
	arn  string
	fifo bool

	exists           bool
	attributesDenied bool              // reading its attributes is denied
	attributes       map[string]string // current ones, or those for its creation

	maxSize   int           // bytes of a message
	delay     int32         // seconds, for messages without a delay of their own
	retention time.Duration // 0 means unknown
}

type kind string

const (
	mainQueue    kind = "queue"
	suspectQueue kind = "suspects"
	deadQueue    kind = "dlq"
)

// layout is the set of queues of one subscription.
type layout struct {
	topic                  string
	main, suspects         *queue
	dlq                    *queue // nil if DLQ.Discard is set
	policy                 redeliver.Policy
	field                  string // name of the policy's field in the configuration
	notes, unchecked       []string
	longestWait, totalWait time.Duration // waits that the policy plans, jitter included: the longest one, and the sum
	dlqRetention           time.Duration // DLQ.Retention; 0 accepts any
}

// newLayout parses a topic and makes all checks that need no request.
func newLayout(cfg *Config, topic string) (*layout, address, error) {
	a := parseTopic(topic)
	var ps redeliver.Problems
	checkName(&ps, "queue of topic "+strconv.Quote(limits.Cut(redeliver.Redact(topic), 200)), a.name)
	if ps.Err() == nil {
		cfg.Names.check(&ps, a.name)
	}
	l := &layout{topic: topic, main: &queue{name: a.name, kind: mainQueue, fifo: isFIFO(a.name)}}
	l.policy, l.field = cfg.policy(a.name)
	l.dlqRetention = cfg.DLQ.Retention
	if err := ps.Err(); err != nil {
		return nil, a, fmt.Errorf("sqs: %w", err)
	}
	l.suspects = &queue{name: cfg.Names.suspects(a.name), kind: suspectQueue, fifo: l.main.fifo}
	if !cfg.DLQ.Discard {
		l.dlq = &queue{name: cfg.Names.dlq(a.name), kind: deadQueue, fifo: l.main.fifo}
	}
	delays, jitter, _ := l.policy.Delays()
	for _, d := range delays {
		l.longestWait = max(l.longestWait, d+jitter)
		l.totalWait += d + jitter
	}
	if !l.main.fifo { // FIFO groups keep their order anyway
		ps.CheckOrder(l.field, l.policy, redeliver.KeyOrder, redeliver.Unordered)
	}
	l.checkVisibilityLimits(&ps)
	if err := ps.Err(); err != nil {
		return nil, a, fmt.Errorf("sqs: %w", err)
	}
	return l, a, nil
}

// checkVisibilityLimits refuses a policy that would hold a message for longer than SQS can hide it.
func (l *layout) checkVisibilityLimits(ps *redeliver.Problems) {
	if l.policy.Timeout > maxVisibility {
		ps.Add(l.field+".Timeout", l.policy.Timeout, fmt.Sprintf("must be at most %s: SQS hides a received message no longer than that", maxVisibility))
	}
	if maxWait := maxVisibility - time.Minute; l.main.fifo && l.totalWait > maxWait {
		ps.Add(l.field+".Backoff", l.totalWait, fmt.Sprintf(
			"must plan waits, jitter included, of at most %s in all: a message of a FIFO queue waits under one receive, and SQS hides it for 12 hours", maxWait))
	}
}

func (l *layout) queues() []*queue { return append([]*queue{l.main}, l.ownQueues()...) }

// ownQueues returns the queues that redeliver creates beside the main one.
func (l *layout) ownQueues() []*queue {
	if l.dlq == nil {
		return []*queue{l.suspects}
	}
	return []*queue{l.suspects, l.dlq}
}

// setAttributes stores the attributes that SQS reports for a queue. maxSize is Config.MaxMessageSize.
func (q *queue) setAttributes(attributes map[string]string, maxSize int) {
	q.exists, q.attributes, q.arn = true, attributes, attributes["QueueArn"]
	if n, err := strconv.Atoi(attributes["MaximumMessageSize"]); err == nil && n > 0 {
		q.maxSize = min(n, cmp.Or(maxSize, n))
	}
	if n, err := strconv.ParseInt(attributes["DelaySeconds"], 10, 32); err == nil {
		q.delay = int32(n)
	}
	if n, err := strconv.Atoi(attributes["MessageRetentionPeriod"]); err == nil {
		q.retention = time.Duration(n) * time.Second
	}
}

// desiredAttributes returns the attributes with which a queue is created.
func (l *layout) desiredAttributes(cfg *Config, q *queue) map[string]string {
	attributes := map[string]string{}
	if q.fifo {
		attributes["FifoQueue"] = "true"
	}
	switch q.kind {
	case mainQueue:
		l.setRedrivePolicy(attributes)
		for name, v := range cfg.QueueAttributes {
			attributes[name] = v
			if v == "" { // an empty value removes even a default
				delete(attributes, name)
			}
		}
		return attributes
	case suspectQueue:
		l.setRedrivePolicy(attributes)
		attributes["VisibilityTimeout"] = strconv.Itoa(int(cfg.VisibilityTimeout / time.Second))
	default:
	}
	kept := maxRetention
	if q.kind == deadQueue && cfg.DLQ.Retention > 0 {
		kept = cfg.DLQ.Retention
	}
	attributes["MessageRetentionPeriod"] = strconv.Itoa(int(kept / time.Second))
	// Our queues accept the same sizes as the main queue, and are encrypted like it.
	from := l.main.attributes
	if !l.main.exists {
		from = cfg.QueueAttributes
	}
	for _, name := range []string{"MaximumMessageSize", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"} {
		if v := from[name]; v != "" {
			attributes[name] = v
		}
	}
	if attributes["KmsMasterKeyId"] != "" {
		delete(attributes, "SqsManagedSseEnabled") // SQS accepts only one of the two
	}
	return attributes
}

// setRedrivePolicy sets the RedrivePolicy of a queue that redeliver creates.
func (l *layout) setRedrivePolicy(attributes map[string]string) {
	if l.dlq != nil {
		attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, l.dlq.arn, maxReceiveCount)
	}
}
