package sqs

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// maxReceiveCount is SQS's maximum. No message reaches it: redeliver counts crashes, and moves the message to the DLQ
// earlier.
const maxReceiveCount = 1000

// layout is the set of queues of one subscription.
type layout struct {
	topic                  string
	address                address // of main
	main, suspects         *api.Queue
	dlq                    *api.Queue // nil if DLQ.Discard is set
	place                  *api.Queue // of notes; nil beside a standard queue
	policy                 redeliver.Policy
	field                  string // name of the policy's field in the configuration
	notes, unchecked       []string
	longestWait, totalWait time.Duration // waits that the policy plans, jitter included: the longest one, and the sum
	dlqRetention           time.Duration // DLQ.Retention; 0 accepts any
	operations             engine.Operations
}

// newLayout parses a topic and makes all checks that need no request.
func newLayout(cfg *Config, topic string) (*layout, error) {
	var ps check.Problems
	a := checkTopic(&ps, topic)
	if ps.Err() == nil {
		cfg.Names.check(&ps, a.name)
	}
	l := &layout{topic: topic, address: a, main: &api.Queue{Name: a.name, Kind: api.MainQueue, FIFO: api.IsFIFO(a.name)}}
	l.policy, l.field = cfg.policy(a.name)
	l.dlqRetention = cfg.DLQ.Retention
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	l.suspects = &api.Queue{Name: cfg.Names.suspects(a.name), Kind: api.SuspectQueue, FIFO: l.main.FIFO}
	if !cfg.DLQ.Discard {
		l.dlq = &api.Queue{Name: cfg.Names.dlq(a.name), Kind: api.DeadQueue, FIFO: l.main.FIFO}
	}
	if l.main.FIFO {
		l.place = &api.Queue{Name: cfg.Names.place(a.name), Kind: api.NoteQueue}
	}
	for _, q := range l.queues() {
		q.OnResult = func(action string, err error) {
			l.recordResult(q, action, err)
			cfg.forgetCredentials(err)
		}
	}
	for _, longest := range l.policy.LongestDelays() {
		l.longestWait = max(l.longestWait, longest)
		l.totalWait += longest
	}
	if !l.main.FIFO { // FIFO groups keep their order anyway
		ps.CheckOrder(l.field, l.policy, redeliver.OrderFirstAttempts, redeliver.OrderNone)
	}
	l.checkVisibilityLimits(&ps)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return l, nil
}

// checkVisibilityLimits refuses a policy that would hold a message for longer than SQS can hide it.
func (l *layout) checkVisibilityLimits(ps *check.Problems) {
	if l.policy.Timeout > maxVisibility {
		ps.Add(l.field+".Timeout", l.policy.Timeout, fmt.Sprintf("must be at most %s: SQS hides a received message no longer than that", maxVisibility))
	}
	if maxWait := maxVisibility - time.Minute; l.main.FIFO && l.totalWait > maxWait {
		ps.Add(l.field+".Backoff", l.totalWait, fmt.Sprintf(
			"must plan waits, jitter included, of at most %s in all: a message of a FIFO queue waits under one receive, and SQS hides it for 12 hours", maxWait))
	}
}

// Places returns the queues for engine.CheckDistinct. Queues of one name in two accounts are two origins; redeliver's
// queues are in the client's account.
func (l *layout) Places() engine.Places {
	account := parseTopic(l.main.ARN).account
	if l.address.url == "" || account == "" {
		account = cmp.Or(l.address.account, account)
	}
	p := engine.Places{Origin: l.main.Name, Read: l.main.Name, Own: []string{l.suspects.Name}}
	if account != "" {
		p.Origin = account + "/" + l.main.Name
	}
	if l.dlq != nil {
		p.DLQ = l.dlq.Name
	}
	if l.place != nil {
		p.Own = append(p.Own, l.place.Name)
	}
	return p
}

// recordResult records the result of a request. Nothing may begin while settled messages cannot be deleted: each would
// run again in the next process.
func (l *layout) recordResult(q *api.Queue, action string, err error) {
	op := engine.Operation{Name: action, Place: q.Name}
	switch {
	case q == l.main && action == "ReceiveMessage": // the pollers report it: the subscription is disconnected
	case err == nil || q == l.main && action == "ListQueueTags" && l.hidesTags(err):
		l.operations.Succeeded(op)
	default:
		l.operations.Failed(op, err, api.IsRefusal(err), action == actionDelete && q != l.place)
	}
}

// hidesTags reports whether err is AWS's answer to those who read the tags of another account's queue, which nobody but
// the owner may.
func (l *layout) hidesTags(err error) bool {
	return l.address.account != "" && api.IsAccessDenied(err)
}

// The actions that Probe can try.
const (
	actionDelete = "DeleteMessageBatch"
	actionHide   = "ChangeMessageVisibilityBatch"
)

func (l *layout) queues() []*api.Queue { return append([]*api.Queue{l.main}, l.ownQueues()...) }

// ownQueues returns the queues that redeliver creates beside the main one.
func (l *layout) ownQueues() []*api.Queue {
	all := []*api.Queue{l.suspects}
	for _, q := range []*api.Queue{l.place, l.dlq} {
		if q != nil {
			all = append(all, q)
		}
	}
	return all
}

// desiredAttributes returns the attributes with which a queue is created.
func (l *layout) desiredAttributes(cfg *Config, q *api.Queue) map[string]string {
	attributes := map[string]string{}
	if q.FIFO {
		attributes["FifoQueue"] = "true"
	}
	switch q.Kind {
	case api.MainQueue:
		l.setRedrivePolicy(attributes, q)
		for name, v := range cfg.QueueAttributes {
			attributes[name] = v
			if v == "" { // an empty value removes even a default
				delete(attributes, name)
			}
		}
		return attributes
	case api.SuspectQueue:
		l.setRedrivePolicy(attributes, q)
		attributes["VisibilityTimeout"] = strconv.Itoa(int(cfg.VisibilityTimeout / time.Second))
	default:
	}
	kept := api.MaxRetention
	if q.Kind == api.DeadQueue && cfg.DLQ.Retention > 0 {
		kept = cfg.DLQ.Retention
	}
	attributes["MessageRetentionPeriod"] = strconv.Itoa(int(kept / time.Second))
	// Our queues accept the same sizes as the main queue, and are encrypted like it.
	from := l.main.Attributes
	if !l.main.Exists {
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

// needs reports whether a queue must not be created without an attribute.
func (l *layout) needs(cfg *Config, q *api.Queue, attribute string) bool {
	_, asked := cfg.QueueAttributes[attribute]
	return api.IsNeeded(attribute) || q.Kind == api.MainQueue && asked || q.Kind == api.DeadQueue && attribute == "MessageRetentionPeriod" && cfg.DLQ.Retention > 0
}

// setRedrivePolicy sets the RedrivePolicy of a queue that redeliver creates, unless the DLQ would refuse it.
func (l *layout) setRedrivePolicy(attributes map[string]string, q *api.Queue) {
	if l.dlq != nil && l.redriveRefusal(q) == "" {
		attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, l.dlq.ARN, maxReceiveCount)
	}
}
