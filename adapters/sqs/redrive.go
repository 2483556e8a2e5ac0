package sqs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// redrivePolicy is a queue's RedrivePolicy, SQS's own mechanism for DLQs.
type redrivePolicy struct {
	Target      string      `json:"deadLetterTargetArn"`
	MaxReceives json.Number `json:"maxReceiveCount"`
}

func (q *queue) redrivePolicy() (p redrivePolicy, maxReceives int, ok bool) {
	raw := q.attributes["RedrivePolicy"]
	if raw == "" || json.Unmarshal([]byte(raw), &p) != nil {
		return p, 0, false
	}
	maxReceives, err := strconv.Atoi(p.MaxReceives.String())
	return p, maxReceives, err == nil
}

// check refuses settings that would cut retries short, and adds notes.
func (l *layout) check(ps *redeliver.Problems) {
	for _, q := range l.queues() {
		if q.attributesDenied {
			l.unchecked = append(l.unchecked, fmt.Sprintf("the attributes of %s (sqs:GetQueueAttributes is denied)", q.name))
		}
	}
	for _, q := range slices.Backward(l.ownQueues()) {
		if q.exists && !q.attributesDenied && l.main.exists && q.maxSize < l.main.maxSize {
			ps.Add("queue "+q.name, q.maxSize, fmt.Sprintf("must take messages of %d bytes as %s does: raise its MaximumMessageSize", l.main.maxSize, l.main.name))
		}
		switch {
		case !q.exists || q.retention == 0:
		case q == l.dlq && l.dlqRetention > 0:
			if q.retention != l.dlqRetention {
				ps.Add("queue "+q.name, q.retention, fmt.Sprintf("must keep messages for %s, as DLQ.Retention says: change one of the two", l.dlqRetention))
			}
		case q.retention < maxRetention:
			l.notes = append(l.notes, fmt.Sprintf("%s keeps its messages for %s only; SQS can keep them for %s", q.name, q.retention, maxRetention))
		}
	}
	l.checkRetention(ps)
	for _, q := range []*queue{l.main, l.suspects} {
		if q.exists {
			l.checkRedrive(ps, q)
		}
	}
	if l.dlq == nil {
		l.notes = append(l.notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	} else if p, _, ok := l.dlq.redrivePolicy(); ok {
		ps.Add("queue "+l.dlq.name, p.Target, "must have no RedrivePolicy of its own: each scan is a receive of every dead letter")
	}
	if l.main.delay > 0 {
		if l.main.fifo {
			l.notes = append(l.notes, fmt.Sprintf("%s delays each message by %d s when it is sent; retries wait hidden and are not delayed by that", l.main.name, l.main.delay))
		} else {
			l.notes = append(l.notes, fmt.Sprintf("%s delays each message by %d s; a retry has its own delay, which is at least 1 s there", l.main.name, l.main.delay))
		}
	}
}

// checkRetention refuses a queue that deletes messages while they wait in it.
func (l *layout) checkRetention(ps *redeliver.Problems) {
	q := l.main
	if q.retention == 0 {
		return
	}
	wait, rule := min(l.longestWait, maxDelay), "the longest wait of one copy"
	if q.fifo {
		wait, rule = l.totalWait, "all waits together: a message keeps its age"
	}
	if q.retention <= wait {
		ps.Add("queue "+q.name, q.retention, fmt.Sprintf("must keep messages for longer than %s, %s: raise its MessageRetentionPeriod", wait, rule))
	}
}

// checkRedrive checks a queue's own RedrivePolicy.
func (l *layout) checkRedrive(ps *redeliver.Problems, q *queue) {
	p, maxReceives, ok := q.redrivePolicy()
	if !ok {
		if q.kind == mainQueue && !q.attributesDenied && l.dlq != nil {
			l.notes = append(l.notes, fmt.Sprintf("%s has no RedrivePolicy, and needs none: redeliver writes to %s itself", q.name, l.dlq.name))
		}
		return
	}
	target := p.Target[strings.LastIndexByte(p.Target, ':')+1:]
	if isFIFO(target) != q.fifo {
		ps.Add("queue "+q.name, "RedrivePolicy to "+target, "must point to a queue of its own kind: FIFO to FIFO, standard to standard")
	}
	minReceiveCount, why := minReceives, "a message that comes back is rewritten before SQS moves it away"
	switch {
	case q.kind == suspectQueue:
		minReceiveCount, why = l.policy.MaxCrashes+1, "a suspect is received once for each crash"
	case q.fifo:
		minReceiveCount = max(0, l.policy.MaxRetries) + 1 + 3
		why = "MaxRetries+1 attempts, and 3 more receives for restarts"
	}
	if maxReceives < minReceiveCount {
		ps.Add("queue "+q.name, fmt.Sprintf("maxReceiveCount %d", maxReceives), fmt.Sprintf("must be at least %d in its RedrivePolicy: %s", minReceiveCount, why))
		return
	}
	if q.kind != mainQueue || maxReceives >= maxReceiveCount && l.dlq != nil && target == l.dlq.name {
		return
	}
	restart := "each retry is a new message, so that only restarts and crashes count as receives"
	if q.fifo {
		restart = "a retry is not a receive while its process lives; each restart is one"
	}
	l.notes = append(l.notes, fmt.Sprintf(
		"%s has a RedrivePolicy of its own: after %d receives SQS moves a message to %s, without redeliver's state; %s", q.name, maxReceives, target, restart))
}

// textOf formats attributes in order.
func textOf(attributes map[string]string) string {
	parts := make([]string, 0, len(attributes))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		parts = append(parts, name+"="+attributes[name])
	}
	return strings.Join(parts, ", ")
}

// maxHandlerWait returns the longest wait that a handler may ask for.
func (l *layout) maxHandlerWait() time.Duration {
	if l.main.fifo {
		return maxVisibility
	}
	return redeliver.MaxWait
}
